"""A seeded program whose lengths follow from what initializing its parameters took of the generator."""

import torch
from torch import nn


class CRF(nn.Module):
    def __init__(s, n):
        super().__init__()
        s.t = nn.Parameter(torch.randn(n, n))
        s.a = nn.Parameter(torch.randn(n))
        s.b = nn.Parameter(torch.randn(n))

    def forward(s, e, tags, mask):
        score = s.a[tags[:, 0]] + e[:, 0].gather(1, tags[:, :1]).squeeze(1)
        alpha = s.a + e[:, 0]
        for i in range(1, e.size(1)):
            score = (
                score
                + (s.t[tags[:, i - 1], tags[:, i]] + e[:, i].gather(1, tags[:, i : i + 1]).squeeze(1))
                * mask[:, i]
            )
            nxt = torch.logsumexp(alpha.unsqueeze(2) + s.t.unsqueeze(0) + e[:, i].unsqueeze(1), 1)
            alpha = torch.where(mask[:, i : i + 1].bool(), nxt, alpha)
        last = mask.sum(1).long() - 1
        score = score + s.b[tags.gather(1, last.unsqueeze(1)).squeeze(1)]
        return (torch.logsumexp(alpha + s.b, 1) - score).mean()

    @torch.no_grad()
    def decode(s, e):
        v = s.a + e[:, 0]
        bp = []
        for i in range(1, e.size(1)):
            v, p = (v.unsqueeze(2) + s.t).max(1)
            v = v + e[:, i]
            bp.append(p)
        best = (v + s.b).argmax(1)
        path = [best]
        for p in reversed(bp):
            best = p.gather(1, best.unsqueeze(1)).squeeze(1)
            path.append(best)
        return torch.stack(path[::-1], 1)


torch.manual_seed(0)
emb = nn.Embedding(5000, 96, padding_idx=0).cuda()
rnn = nn.LSTM(96, 80, 2, bidirectional=True, batch_first=True, dropout=0.1).cuda()
lin = nn.Linear(160, 23).cuda()
crf = CRF(23).cuda()
ps = [*emb.parameters(), *rnn.parameters(), *lin.parameters(), *crf.parameters()]
opt = torch.optim.AdamW(ps, 1e-3, amsgrad=True)
sch = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-2, total_steps=10)
for _ in range(2):
    lens = torch.randint(5, 31, (24,))
    lens[0] = 30
    ids = torch.randint(1, 5000, (24, 30))
    mask = torch.arange(30)[None] < lens[:, None]
    ids = ids.masked_fill(~mask, 0).cuda()
    mask = mask.float().cuda()
    tags = torch.randint(0, 23, (24, 30)).cuda()
    packed = nn.utils.rnn.pack_padded_sequence(emb(ids), lens, batch_first=True, enforce_sorted=False)
    h, _ = nn.utils.rnn.pad_packed_sequence(rnn(packed)[0], batch_first=True, total_length=30)
    loss = crf(lin(h), tags, mask)
    loss.backward()
    nn.utils.clip_grad_norm_(ps, 5.0)
    opt.step()
    sch.step()
    opt.zero_grad(set_to_none=False)
print(crf.decode(lin(h.detach())).cpu().tolist()[0][:5])
