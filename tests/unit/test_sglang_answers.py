"""Answers are scored by their words: other words of the same are healthy, other words of nothing are not."""

from __future__ import annotations

from ansible.module_utils import sglang_answers as answers

RECORDED = "Paris is the capital of France and lies on the Seine."


def test_the_same_words_are_whole_whatever_their_order_and_case():
    assert answers.score("the Seine lies on and FRANCE of capital the is Paris", RECORDED) == 1.0


def test_a_paraphrase_passes_and_noise_does_not():
    assert answers.score("The capital of France is Paris, a city on the Seine.", RECORDED) > 0.7
    assert answers.score("!!!!!!!!", RECORDED) == 0.0
    assert answers.score("", RECORDED) == 0.0


def test_one_answer_of_its_own_is_allowed_by_the_mean_and_the_worst_is_shown():
    scored = [("a", "x", "x", 1.0), ("b", "x", "y", 0.0)]
    assert answers.judge(scored, 0.5) is None
    assert answers.judge(scored, 0.6) == (
        "prompts: declared a score of 0.6, found 0.50 in the mean of 2.\n"
        "  worst    0.00 for 'b'\n  recorded 'x'\n  answered 'y'"
    )


def test_without_a_word_only_the_same_is_the_same():
    assert (answers.score("===", "==="), answers.score("!!!!", "===")) == (1, 0)
