"""A small transformer that learns to add, evaluated after every epoch, with a schedule that counts epochs."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hopjob

DIGITS, WIDTH = 3, 48
SIGNS = 10


class Adder(nn.Module):
    """Digits of two numbers in, digits of their sum out."""

    def __init__(self):
        super().__init__()
        self.digits = nn.Embedding(SIGNS, WIDTH)
        self.places = nn.Parameter(torch.randn(2 * DIGITS, WIDTH) / 10)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.sums = nn.Linear(2 * DIGITS * WIDTH, DIGITS * SIGNS)

    def forward(self, digits):
        hidden = self.layers(self.digits(digits) + self.places)
        return self.sums(hidden.flatten(1)).view(-1, SIGNS, DIGITS)


def sums(count, seed):
    numbers = torch.randint(0, 10**DIGITS // 2, (count, 2), generator=torch.Generator().manual_seed(seed))
    places = 10 ** torch.arange(DIGITS)
    return TensorDataset(
        (numbers[:, :, None] // places % 10).flatten(1), numbers.sum(1)[:, None] // places % 10
    )


torch.manual_seed(1)
model = Adder()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
job = hopjob.attach(model, optimizer, scheduler)

for digits, expected in job.batches(DataLoader(sums(4000, 0), batch_size=64, shuffle=True), epochs=3):
    loss = nn.functional.cross_entropy(job.model(digits), expected)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if job.ends_epoch:
        scheduler.step()  # before the evaluation, in which the job may be stopped
        if job.rank == 0:
            right = total = 0
            with torch.no_grad():
                for numbers, known in DataLoader(sums(500, 1), batch_size=100):
                    job.check()
                    right += (model(numbers.to(job.device)).argmax(1).cpu() == known).sum().item()
                    total += known.numel()
            print(f"epoch {job.epoch} loss {loss.item():.4f} digits right {right / total:.1%}")
