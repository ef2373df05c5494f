"""A checkpoint with the states of random numbers, read back to the GPU: what was saved is what is put back."""

import io

import torch

net = torch.nn.Linear(64, 64).cuda()
own = torch.Generator("cuda").manual_seed(3)
file = io.BytesIO()
states = {"host": torch.get_rng_state(), "gpu": torch.cuda.get_rng_state(), "own": own.get_state()}
torch.save({"net": net.state_dict(), "mask": torch.tensor([True, False, True]), **states}, file)
file.seek(0)
found = torch.load(file, map_location="cuda")
net.load_state_dict(found["net"])
for name, state in states.items():
    assert found[name].is_cuda and torch.equal(found[name].cpu(), state)
torch.set_rng_state(found["host"].cpu())
torch.cuda.set_rng_state(found["gpu"].cpu())
own.manual_seed(4)
own.set_state(found["own"].cpu())
assert own.initial_seed() == 3
assert torch.randn(8, device="cuda")[:3][found["mask"]].shape == (2,)
turned = torch.tensor([[1, 2, 3], [4, 5, 6]], device="cuda").t_()
assert turned.tolist() == [[1, 4], [2, 5], [3, 6]]
net(torch.randn(4, 64, device="cuda")).sum().backward()
