"""Wrong results are named: mistakes of the catalog and pairs of them, for every exercise that is a step of the law.

The results come from the law with the mistakes, so nothing depends on how a learner writes them.
"""

import functools
import itertools
import random

import numpy as np
import pytest

from regard.laws.mistakes import CATALOG, of_name
from regard.learn.checking import naming
from regard.learn.checking.grading import Grading, agree
from regard.learn.checking.naming import computed, explained
from regard.learn.checking.naming import result as naming_result
from regard.learn.checking.problem import Problem
from regard.learn.running import installed
from regard.learn.source import chapters
from tests.support.lanes import SWEEP, sweep

EXERCISES = {
    f"{chapter.number} {exercise.name}": exercise
    for chapter in chapters()
    for exercise in chapter.exercises
    if exercise.computes and not installed(exercise.needs)
}
PAIRS = 12 if SWEEP else 5  # of each exercise, drawn
NAMES = {mistake.name for mistake in CATALOG}


def each_of(*few):
    """A test of the cheapest exercises; of all in sweeps."""
    return pytest.mark.parametrize("name", [*few, *sweep(*(name for name in EXERCISES if name not in few))])


@functools.cache
def graded(name):
    """The grading of an exercise, which computes the right results once."""
    return Grading(EXERCISES[name])


@pytest.fixture(autouse=True)
def remembered(monkeypatch):
    """What the law with mistakes gives is computed once for each case; all cases are run, however long it takes."""
    arguments, results = {}, {}
    mistaken = naming.ObservedCase.mistaken

    def changed(case, mistakes):
        key = case.id, tuple(mistakes)
        if key not in arguments:
            arguments[key] = mistaken(case, mistakes)
        return arguments[key]

    def result(step, call, changed, like):
        key = step, changed  # which keeps the arguments, so that no others have their place in memory
        if key not in results:
            results[key] = naming_result(step, call, changed, like)
        return results[key]

    monkeypatch.setattr(naming, "OBSERVING", 600.0)
    monkeypatch.setattr(naming.ObservedCase, "mistaken", changed)
    monkeypatch.setattr(naming, "result", result)


@functools.cache
def results(grading, *mistakes):
    """The results of all cases with these mistakes; None if they are the right ones."""
    found, differs = {}, False
    for number, (case, wanted) in enumerate(zip(grading.cases, grading.wanted)):
        if not isinstance(wanted, np.ndarray):
            return None
        wrong = computed(grading.exercise.computes, case, mistakes, wanted)
        found[number] = wanted if wrong is None else wrong.astype(wanted.dtype)
        differs = differs or not agree(found[number], wanted, grading.digits)
    return found if differs else None


def named(grading, *mistakes):
    """What a function with these mistakes is called."""
    grading.results = results(grading, *mistakes)
    return explained(Problem("value", "not right"), grading)


@functools.cache
def outcomes(grading, index):
    """What a wrong answer of the chapter gives in each case."""
    wrong = grading.exercise.wrong[index]
    function = grading.defined(wrong.code)
    return [grading.outcome(function, case) for case in grading.cases]


def same(grading, first, second):
    return all(agree(first[number], second[number], grading.digits) for number in first)


@pytest.mark.parametrize("name", EXERCISES)
def test_every_listed_mistake_changes_something(name):
    """A chapter does not promise to name what no case of it shows."""
    grading = graded(name)

    assert [each for each in grading.exercise.mistakes if results(grading, of_name(each)) is None] == []


@each_of("3 scores", "5 attend", "6 attend", "6 causal", "6 combined", "12 streaming")
def test_single_mistakes_are_named(name):
    """Each mistake that changes some case is named, or one that no case tells apart from it; those are all stated."""
    grading = graded(name)
    exercise = grading.exercise
    expected = {*exercise.mistakes, *(each.mistake for each in exercise.wrong)}
    seen = {each.name: results(grading, each) for each in CATALOG}
    for mistake, found in seen.items():
        if found is None:
            continue
        alike = {other for other, result in seen.items() if result is not None and same(grading, found, result)}
        alike |= {
            each.mistake for index, each in enumerate(exercise.wrong) if same(grading, found, outcomes(grading, index))
        }

        problem = named(grading, of_name(mistake))

        stated = {*problem.mistakes, *problem.alike}
        assert stated == (alike & expected or alike), (mistake, stated, alike)
        assert len(problem.mistakes) == 1 and problem.description and problem.cause and problem.fix
        if mistake in exercise.mistakes:
            assert mistake in stated


@each_of("3 scores", "5 attend", "12 streaming")
def test_pairs_of_mistakes_are_named(name):
    """Two listed mistakes at once, or a listed one and any other: the names give the same results."""
    grading = graded(name)
    usable = [each for each in CATALOG if not each.alone and results(grading, each) is not None]
    listed = [each for each in usable if each.name in grading.exercise.mistakes]
    pairs = [pair for pair in itertools.product(listed, usable) if pair[0] is not pair[1]]
    for pair in random.Random(0).sample(pairs, min(PAIRS, len(pairs))):
        found = results(grading, *pair)
        if found is None:
            continue

        problem = named(grading, *pair)

        assert problem.mistakes, [each.name for each in pair]
        of_chapter = any(
            each.mistake == problem.mistakes[0] and same(grading, found, outcomes(grading, index))
            for index, each in enumerate(grading.exercise.wrong)
        )
        assert of_chapter or same(grading, results(grading, *map(of_name, problem.mistakes)), found), problem.mistakes


@pytest.mark.parametrize("name", EXERCISES)
def test_wrong_answers_are_what_the_catalog_says(name):
    """A wrong answer that leaves its explanation to the catalog gives what the catalog describes in some case.

    Not in all: arrays of the learner's overflow elsewhere than those of the law, or raise an error.
    """
    grading = graded(name)
    for index, each in enumerate(grading.exercise.wrong):
        by_law = None if each.cause or each.mistake not in NAMES else results(grading, of_name(each.mistake))
        if by_law is None:
            continue
        assert any(
            agree(outcomes(grading, index)[number], found, grading.digits)
            for number, found in by_law.items()
            if not agree(found, grading.wanted[number], grading.digits)
        ), each.mistake


@each_of("3 scores", "12 streaming")
def test_unknown_mistakes_are_not_named(name):
    """Results of no known mistake keep their problem as it is."""
    grading = graded(name)
    grading.results = {number: wanted + 0.37 for number, wanted in enumerate(grading.wanted)}

    assert explained(Problem("value", "not right"), grading) == Problem("value", "not right")


def test_a_mistake_that_does_not_apply_leaves_the_other():
    """Without a mask, a function with two mistakes, one of them of masks, has the other one."""
    case = {"q": np.arange(8.0).reshape(2, 4), "k": np.eye(4)}
    mask, scale = of_name("mask-inverted"), of_name("scale-missing")

    both = computed("scores", case, (mask, scale), np.zeros((2, 4)))

    assert computed("scores", case, (mask,), np.zeros((2, 4))) is None
    assert both is not None and np.array_equal(both, case["q"] @ case["k"].T)
