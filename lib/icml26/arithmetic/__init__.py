"""Chained arithmetic with written-out steps, and small language models trained on it.

`task` makes problems, their training texts and verdicts on continuations. `models` holds the recipes of the models that
chapters sample from and loads the committed results. Neither takes part in a paper's method: several chapters share
them as a task whose answers can be checked and whose solutions can be told apart.
"""
