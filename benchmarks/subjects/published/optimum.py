"""What optimum-benchmark's tests run of a model: `optimum.py NAME load|forward|train`.

load: the model alone, in float32. forward: with one input (a picture, or two words), in inference mode. train: five steps of
transformers' Trainer on two texts of 16 words (AdamW as its releases of 2024 took it, not fused; gradients clipped).
"""

import sys

import torch

name, what = sys.argv[1:]


def made():
    if name == "resnet50":
        import timm

        return timm.create_model("resnet50.a1_in1k")
    if name == "bert-base":
        from transformers import BertConfig, BertForMaskedLM

        return BertForMaskedLM(BertConfig(vocab_size=30522))
    from transformers import RobertaConfig, RobertaForMultipleChoice

    return RobertaForMultipleChoice(
        RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5)
    )


def train(model):
    from transformers import Trainer, TrainingArguments

    shape = (1, 16) if name == "roberta-base" else (16,)
    words = torch.randint(0, 30000, (500, *shape))
    labels = torch.zeros(500, dtype=torch.int64) if name == "roberta-base" else words
    rows = [
        {"input_ids": words[n], "attention_mask": torch.ones_like(words[n]), "labels": labels[n]}
        for n in range(500)
    ]
    arguments = TrainingArguments(
        "/tmp/none", optim="adamw_torch", per_device_train_batch_size=2, max_steps=5, report_to="none", save_strategy="no", eval_strategy="no", do_train=True,
    )  # fmt: skip
    Trainer(model=model, args=arguments, train_dataset=rows).train()


with torch.device(
    "cuda" if name != "resnet50" else "cpu"
):  # its loader makes transformers' weights on the GPU
    model = made()
if what == "train":
    train(model)
else:
    model = model.to("cuda").eval()
    if what == "forward":
        torch.cuda.reset_peak_memory_stats()
        with torch.inference_mode():
            for _ in range(3):
                picture = torch.rand(1, 3, 224, 224).to("cuda")
                results = model.forward(picture)
print(f"PEAKS {torch.cuda.max_memory_allocated()} {torch.cuda.max_memory_reserved()}")
