"""Lightning: a module that says its step and its optimizer, and a trainer that does the rest."""

import argparse

import lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def training_step(self, batch, _index):
        x, y = batch
        loss = F.cross_entropy(self.layers(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _index):
        x, y = batch
        self.log("accuracy", (self.layers(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--precision", default="32-true")
    args = parser.parse_args()
    data = TensorDataset(torch.randn(4 * args.batch, 64), torch.randint(0, 10, (4 * args.batch,)))
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="gpu", devices=1, precision=args.precision, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, accumulate_grad_batches=2,
    )  # fmt: skip
    trainer.fit(
        Classifier(args.width), DataLoader(data, args.batch, num_workers=2), DataLoader(data, args.batch)
    )


if __name__ == "__main__":
    main()
