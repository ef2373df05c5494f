# huggingface/transformers#7232, #8476: Trainer.evaluate keeps the logits of all batches on the GPU
import tempfile
import numpy, torch
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 192

    def __getitem__(self, i):
        ids = torch.arange(256) * 31 % 8000
        return {"input_ids": ids, "attention_mask": torch.ones(256, dtype=torch.long), "labels": ids}


def correct(prediction):
    return {"shape": float(numpy.prod(prediction.predictions.shape))}


config = BertConfig(
    vocab_size=8000, hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=1024
)
args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_eval_batch_size=8, report_to=[])
trainer = Trainer(model=BertForMaskedLM(config), args=args, eval_dataset=Data(), compute_metrics=correct)
print(trainer.evaluate())
