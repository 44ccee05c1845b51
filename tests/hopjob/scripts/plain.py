"""A script that knows nothing of hopyard: accumulates gradients, evaluates now and then, trains with DDP."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

LOAD_S, COMPUTE_S, ACCUMULATE = 0.004, 0.006, 2


class Slow(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __len__(self) -> int:
        return int(os.environ.get("DATASET", "400"))

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(LOAD_S / 4)
        return torch.full((8,), index / 400), torch.tensor([index / 400])


class Paced(nn.Module):
    """Takes its time in forward, and twice that in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(COMPUTE_S)
        y: torch.Tensor = self.inner(x)
        if y.requires_grad:
            y.register_hook(lambda _: time.sleep(2 * COMPUTE_S))
        return y


def main() -> None:
    torch.manual_seed(1)
    model: nn.Module = Paced()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader, tests = DataLoader(Slow(), batch_size=4), DataLoader(Slow(), batch_size=4)
    updates, evaluated, times = 0, 0.0, []
    last = time.perf_counter()
    for _ in range(int(os.environ.get("EPOCHS", "1"))):
        for number, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(model(x), y)
            (loss / ACCUMULATE).backward()
            if number % ACCUMULATE < ACCUMULATE - 1:
                continue
            optimizer.step()
            now = time.perf_counter()
            times.append(now - last - evaluated)
            print(f"iteration {times[-1]:.6f}", flush=True)
            last, evaluated = now, 0.0
            optimizer.zero_grad()
            updates += 1
            if updates % 10 == 0:
                begin = time.perf_counter()
                with torch.no_grad():
                    for index, (inputs, _) in enumerate(tests):
                        model(inputs)
                        if index == 3:
                            break
                evaluated = time.perf_counter() - begin
    print("trained", updates, flush=True)


main()
