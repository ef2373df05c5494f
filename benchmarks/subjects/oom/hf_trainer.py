# huggingface/transformers: a Trainer whose batch is too large
import tempfile
import torch
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        ids = torch.randint(0, 8000, (256,))
        return {"input_ids": ids, "attention_mask": torch.ones(256, dtype=torch.long), "labels": ids}


config = BertConfig(
    vocab_size=8000, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048
)
model = BertForMaskedLM(config)
args = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=32,
    max_steps=3,
    report_to=[],
    save_strategy="no",
)
Trainer(model=model, args=args, train_dataset=Data()).train()
