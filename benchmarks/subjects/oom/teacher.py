# distillation: the teacher's graph is kept although nothing trains it
import torch, torch.nn as nn

teacher = nn.Sequential(
    *[nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(8)]
)
student = nn.Sequential(
    nn.Sequential(nn.Linear(1024, 1024), nn.GELU()), nn.Sequential(nn.Linear(1024, 1024), nn.GELU())
)
teacher, student = teacher.cuda(), student.cuda()
opt = torch.optim.AdamW(student.parameters())
for step in range(3):
    x = torch.randn(4096, 1024, device="cuda")
    loss = nn.functional.mse_loss(student(x), teacher(x))
    loss.backward()
    opt.step()
    opt.zero_grad()
