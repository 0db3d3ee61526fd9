"""A tiny language model with the transformers Trainer: it learns to count. `python train.py` alone, or submitted."""

import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging

import whistlestop
from whistlestop.integrations.transformers import Whistle

EPOCHS = int(os.environ.get("EPOCHS", "3"))
WORDS, LENGTH = 32, 12


class Counting(torch.utils.data.Dataset):
    """Every sentence begins somewhere and counts up by 1, 2 or 3."""

    def __init__(self, count: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        first = torch.randint(0, WORDS, (count, 1), generator=draw)
        pace = torch.randint(1, 4, (count, 1), generator=draw)
        self.sentences = (first + pace * torch.arange(LENGTH)) % WORDS

    def __len__(self) -> int:
        return len(self.sentences)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.sentences[index], "labels": self.sentences[index]}


def main() -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    set_seed(0)
    size = {"vocab_size": WORDS, "n_positions": LENGTH, "n_embd": 32, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0))
    arguments = TrainingArguments(
        output_dir="trainer",
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=16,
        learning_rate=3e-3,
        eval_strategy="steps",
        eval_steps=10,
        logging_steps=1,
        save_strategy="no",  # whistlestop saves
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    rules = [whistlestop.plateau("eval_loss", patience=3)]
    with whistlestop.run("transformers", every="20 steps", stop_when=rules) as run:
        whistle = Whistle(run)
        data = {"train_dataset": Counting(512, seed=1), "eval_dataset": Counting(64, seed=2)}
        trainer = Trainer(model=model, args=arguments, callbacks=[whistle], **data)
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=whistle.resume_from)
    print(f"eval_loss {trainer.evaluate()['eval_loss']:.4f} after {trainer.state.global_step} steps")


if __name__ == "__main__":
    main()
