"""A small language model with Hugging Face's Trainer: one callback makes it elastic."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from hopjob.huggingface import HuggingFaceCallback

WORDS, LENGTH, SAMPLES = 64, 16, 960


class Counting(torch.utils.data.Dataset):
    """Sequences that count up from somewhere: what comes next can be learnt."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        tokens = (torch.arange(LENGTH) + index) % WORDS
        return {"input_ids": tokens, "labels": tokens}


torch.manual_seed(1)
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
)
arguments = TrainingArguments(
    output_dir="hf-output",
    per_device_train_batch_size=16,
    num_train_epochs=8,
    learning_rate=0.003,
    save_strategy="no",
    logging_steps=10,
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=Counting(), callbacks=[HuggingFaceCallback()])
trainer.train()
