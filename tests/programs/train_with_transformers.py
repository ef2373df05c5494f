"""transformers' Trainer: accumulation, checkpointing, bf16, an optimizer by name, an evaluation at the end."""

import argparse
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(torch.utils.data.Dataset):
    """Random words with random labels."""

    def __init__(self, count: int, length: int) -> None:
        self.words, self.labels = torch.randint(5, 1000, (count, length)), torch.randint(0, 2, (count,))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = self.words[index]
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": self.labels[index]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--optimizer", default="adamw_torch")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--steps", type=int, default=2)
    args = parser.parse_args()
    config = BertConfig(
        vocab_size=1000, hidden_size=args.width, num_hidden_layers=args.layers, num_attention_heads=4,
        intermediate_size=4 * args.width,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder, max_steps=args.steps, per_device_train_batch_size=args.batch, bf16=args.bf16, optim=args.optimizer,
            gradient_accumulation_steps=args.accumulation, gradient_checkpointing=args.checkpointing,
            save_strategy="no", report_to=[], disable_tqdm=True,
        )  # fmt: skip
        data = Sentences(args.batch * args.accumulation * args.steps, args.length)
        trainer = Trainer(
            BertForSequenceClassification(config), settings, train_dataset=data, eval_dataset=data
        )
        trainer.train()
        print(trainer.evaluate())


if __name__ == "__main__":
    main()
