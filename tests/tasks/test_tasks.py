"""What every kind of task promises: targets, losses that add up, averaging, columns, inference."""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest
import torch

import grass_gnn
from grass_gnn.config import TASK_KINDS, GRASSConfig, TaskConfig, TaskKind
from grass_gnn.errors import ConfigError, DataError, GrassError
from grass_gnn.tasks import (
    METRICS,
    TASKS,
    Binary,
    Classification,
    Multilabel,
    Regression,
    TargetColumn,
    kind_of_columns,
    kind_of_tensor,
    make_task,
)
from grass_gnn.testing import random_input

OUTPUTS = {"regression": 3, "binary": 1, "classification": 4, "multilabel": 3}
PACKAGE = Path(grass_gnn.__file__).parent


def make(kind, **changes):
    settings = TASKS[kind].default_settings(OUTPUTS[kind]) | changes
    return make_task(TaskConfig.model_validate(settings))


def every_loss():
    return [(kind, loss) for kind, rules in TASK_KINDS.items() for loss in rules.losses]


def test_settings_and_classes_name_the_same_kinds_losses_and_metrics():
    assert list(TASKS) == list(TASK_KINDS) == list(get_args(TaskKind))
    assert {name for rules in TASK_KINDS.values() for name in rules.metrics} == set(METRICS)
    fields = TaskConfig.model_fields
    losses = {name for rules in TASK_KINDS.values() for name in rules.losses}
    assert set(get_args(fields["loss"].annotation)) == losses
    assert set(get_args(fields["metric"].annotation)) == set(METRICS)


def test_no_other_module_compares_kinds_of_tasks():
    """A new kind touches tasks/, the settings, and nothing else."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).as_posix().startswith(("tasks/", "config/sections.py")):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Compare | ast.Dict | ast.Subscript | ast.Call):
                inner = [*ast.iter_child_nodes(node), *getattr(node, "keys", [])]
                inner += [one for part in inner for one in getattr(part, "elts", [])]
                named = [one for one in inner if getattr(one, "value", None) in TASKS]
                found += [f"{path.name}:{node.lineno}"] if named else []
    assert not found


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("level", ["graph", "node", "edge"])
def test_random_targets_pass_their_own_check(kind, level):
    task = make(kind, level=level)
    rows = task.num_rows(1, 5, 8)
    assert rows == {"graph": 1, "node": 5, "edge": 8}[level]
    y = task.random_targets(rows, torch.Generator().manual_seed(0))
    checked = task.check_targets(y, rows)
    assert torch.equal(checked, y)
    assert checked.dtype == task.target_type and checked.shape == task.target_shape(rows)
    assert y.numel() == rows * task.target_columns
    assert task.stored_problem(checked) is None
    data = random_input(GRASSConfig(task=task.config))
    assert data.y.shape == task.target_shape(task.num_rows(1, data.num_nodes, data.num_edges))


@pytest.mark.parametrize("kind", TASKS)
def test_targets_of_another_size_or_value_are_refused(kind):
    task = make(kind)
    y = task.random_targets(1, torch.Generator().manual_seed(0)).float()
    with pytest.raises(DataError):
        task.check_targets(torch.cat([y, y], dim=-1), 1)
    with pytest.raises(DataError):
        task.check_targets(torch.full_like(y, torch.nan), 1)
    if task.predicts_probabilities:
        with pytest.raises(DataError):
            task.check_targets(torch.full_like(y, 0.5), 1)
    if task.classes is not None:
        assert task.stored_problem(torch.tensor([0, task.classes])) is not None


def test_a_row_of_targets_per_target_is_not_taken_for_one_per_node():
    task = make("regression", level="node")  # three targets
    y = torch.randn(5, 3)
    assert torch.equal(task.check_targets(y, 5), y)
    assert torch.equal(task.check_targets(y.flatten(), 5), y)
    with pytest.raises(DataError):
        task.check_targets(y.t(), 5)
    graph = make("regression")  # of one graph, a column is as clear as a row
    assert torch.equal(graph.check_targets(y[:1].t(), 1), y[:1])
    single = make("regression", level="node", outputs=1)
    assert single.check_targets(y[None, :, 0], 5).shape == (5, 1)


@pytest.mark.parametrize("kind", TASKS)
def test_a_graph_without_edges_has_no_targets_of_edges(kind):
    task = make(kind, level="edge")
    assert task.check_targets(torch.zeros(0), 0).shape == task.target_shape(0)


def test_some_targets_may_be_missing_where_the_settings_say_so():
    y = torch.tensor([1.0, torch.nan, 0.0])
    for kind in ("regression", "multilabel"):
        checked = make(kind, missing=True).check_targets(y, 1)
        torch.testing.assert_close(checked, y[None], equal_nan=True)
        with pytest.raises(DataError):
            make(kind).check_targets(y, 1)
    with pytest.raises(ConfigError):
        GRASSConfig.from_dict({"task": Classification.default_settings(3) | {"missing": True}})
    assert not Classification.default_settings(3, missing=True)["missing"]


@pytest.mark.parametrize(("kind", "loss"), every_loss())
def test_parts_of_a_batch_add_up_to_its_loss(kind, loss):
    """What each of two processes computes, with sums over both, adds up to the loss of all."""
    task = make(kind, loss=loss)
    source = torch.Generator().manual_seed(1)
    prediction = torch.randn(30, task.outputs, generator=source, dtype=torch.float64)
    target = task.random_targets(30, source)
    if task.classes is None:
        target[4] = torch.nan
    parts = [slice(0, 11), slice(11, 30)]
    seen = [[], []]  # what each process asks to have summed, in order

    def record(place):
        def add_up(values):
            seen[place].append(values)
            return values

        return add_up

    total = torch.zeros((), dtype=torch.float64)
    for place, rows in enumerate(parts):  # what is to be summed does not depend on the sums,
        task.loss(prediction[rows], target[rows], 0.1, record(place))
    sums = [sum(values) for values in zip(*seen, strict=True)]
    if loss == "weighted-cross-entropy":  # except here: the weights come from the first sum
        weights = (sums[0].sum() - sums[0]) / sums[0].sum()
        sums[1] = weights.double()[target].sum()
    for rows in parts:
        answers = iter(sums)
        total += task.loss(prediction[rows], target[rows], 0.1, lambda _, a=answers: next(a))
    assert float(total) == pytest.approx(float(task.loss(prediction, target, 0.1)), rel=1e-6)


@pytest.mark.parametrize(("kind", "loss"), every_loss())
def test_a_batch_in_which_nothing_counts_has_no_loss_and_no_gradient(kind, loss):
    task = make(kind, loss=loss)
    target = task.random_targets(6, torch.Generator().manual_seed(1))
    batches = [target[:0]]  # a mask that selects nothing
    if task.classes is None:
        batches.append(torch.full_like(target, torch.nan))
    elif loss == "weighted-cross-entropy":
        batches.append(torch.zeros_like(target))  # the only class has no weight
    for targets in batches:
        prediction = torch.randn(len(targets), task.outputs, requires_grad=True)
        for smoothing in (0.0, 0.1):
            value = task.loss(prediction, targets, smoothing)
            (gradient,) = torch.autograd.grad(value, prediction)
            assert value.item() == 0 and not gradient.any()


@pytest.mark.parametrize(("kind", "loss"), every_loss())
def test_the_loss_falls_towards_the_targets(kind, loss):
    task = make(kind, loss=loss)
    source = torch.Generator().manual_seed(2)
    target = task.random_targets(40, source)
    prediction = torch.randn(40, task.outputs, generator=source, requires_grad=True)
    before = task.loss(prediction, target, 0.0)
    (gradient,) = torch.autograd.grad(before, prediction)
    assert gradient.isfinite().all()
    assert task.loss(prediction - 0.1 * gradient.sign(), target, 0.0) < before


def test_targets_in_different_units_get_the_same_weight():
    task = make("regression", target_scale=[1.0, 10.0, 100.0])
    target = torch.randn(20, 3) * torch.tensor([1.0, 10.0, 100.0])
    prediction = target + torch.tensor([0.5, 5.0, 50.0])
    assert float(task.loss(prediction, target, 0.0)) == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize("kind", TASKS)
def test_averages_of_predictions_are_predictions(kind):
    """Probabilities are averaged, not logits, and activation has an inverse."""
    task = make(kind)
    outputs = torch.randn(5, 20, task.outputs, dtype=torch.float64)
    predictions = task.activate(outputs)
    assert torch.allclose(task.activate(task.inverse(predictions)), predictions, atol=1e-9)
    mean = predictions.mean(dim=0)
    if task.predicts_probabilities:
        assert bool(((mean >= 0) & (mean <= 1)).all())
    if task.classes is not None:
        assert torch.allclose(mean.sum(dim=1), torch.ones(20, dtype=torch.float64))
        assert torch.equal(task.decide(mean), mean.argmax(dim=1))
    else:
        assert torch.equal(task.decide(mean), mean)


@pytest.mark.parametrize("kind", TASKS)
def test_perfect_predictions_have_perfect_scores(kind):
    task = make(kind)
    target = task.random_targets(50, torch.Generator().manual_seed(3))
    if task.classes is None:
        perfect = target
    else:
        perfect = torch.nn.functional.one_hot(target, task.classes).float()
    for name in task.metrics:
        assert task.score(perfect, target, name) == (0 if METRICS[name].lower_is_better else 1)


def test_scaling_standardises_known_numbers_only():
    values = [torch.tensor([[1.0, torch.nan, 7.0]]), torch.tensor([[3.0, 5.0, 7.0]])]
    found = make("regression").scaling(values)
    assert found == {"target_scale": [1.0, 1.0, 1.0], "target_shift": [2.0, 5.0, 7.0]}
    assert make("multilabel").scaling(values) == {}


COLUMNS = {
    "regression": (["a", "b", "c"], []),
    "binary": (["toxic"], ["no", "yes"]),
    "classification": (["color"], ["blue", "green", "red", "grey"]),
    "multilabel": (["a", "b", "c"], []),
}


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("named", [True, False])
def test_each_output_has_a_column_and_a_name_of_its_own(kind, named):
    task, (targets, classes) = make(kind), COLUMNS[kind]
    classes = classes if named else []
    columns = task.output_columns(targets, classes)
    every = task.answer_columns(targets) + [name for pair in columns for name in pair]
    assert len(columns) == task.outputs and len(set(every)) == len(every)
    names = task.output_names(targets, classes)
    assert len(names) == len(set(names)) == task.outputs
    assert len(task.output_names([], [])) == task.outputs
    mean = torch.rand(task.outputs)
    answers = task.answer_cells(mean, classes)
    assert len(answers) == len(task.answer_columns(targets))
    if named and answers:
        assert answers == [task.headline(names, mean)] == [classes[int(mean.argmax())]]


def test_columns_as_documented():
    def columns(kind, named=True):
        targets, classes = COLUMNS[kind]
        return [value for value, _ in make(kind).output_columns(targets, classes * named)]

    assert columns("regression") == ["a_pred", "b_pred", "c_pred"]
    assert columns("multilabel") == ["a_prob", "b_prob", "c_prob"]
    assert columns("binary") == ["toxic_prob_yes"]
    assert columns("binary", named=False) == ["toxic_prob"]
    assert columns("classification")[:2] == ["color_prob_blue", "color_prob_green"]
    assert make("classification").answer_columns(["color"]) == ["color_pred"]


def column(*cells):
    numbers = all(re.fullmatch(r"-?[\d.]+", cell) for cell in cells)
    return TargetColumn(set(cells), numbers, set(cells) <= {"0", "1", "yes", "no"})


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([column("0.5", "1", "2")], Regression),
        ([column("0", "1")], Binary),
        ([column("yes", "no")], Binary),
        ([column("0", "1", "2")], Classification),
        ([column("red", "green", "blue")], Classification),
        ([column(*map(str, range(11)))], Regression),  # more are quantities
        ([column("0", "1"), column("1")], Multilabel),
        ([column("0", "1"), column("0.5")], Regression),
    ],
)
def test_the_kind_follows_from_the_columns_of_a_table(columns, expected):
    found, why = kind_of_columns({f"t{n}": one for n, one in enumerate(columns)})
    assert found is expected and why


def test_text_among_several_columns_is_refused():
    with pytest.raises(DataError, match="'b'"):
        kind_of_columns({"a": column("0.5"), "b": column("red")})


@pytest.mark.parametrize("kind", TASKS)
def test_the_kind_follows_from_random_targets(kind):
    task = make(kind)
    y = task.random_targets(40, torch.Generator().manual_seed(4))
    rows = y.view(40, -1)
    assert kind_of_tensor(rows, rows.flatten()) is TASKS[kind]


def test_errors_are_value_errors_with_classes_of_their_own():
    assert issubclass(GrassError, ValueError)
    with pytest.raises(ConfigError):
        GRASSConfig.preset("no-such-preset")
    with pytest.raises(ValueError, match="outputs"):
        GRASSConfig().override({"task.outputs": 0})


def test_former_functions_warn_once_and_still_compute():
    from grass_gnn.evaluation import score
    from grass_gnn.training import task_loss

    task = make("regression")
    prediction, target = torch.randn(2, 10, 3)
    with pytest.warns(DeprecationWarning, match="make_task"):
        found = task_loss(task.config, prediction, target, 0.1)
    assert torch.equal(found, task.loss(prediction, target, 0.1))
    with pytest.warns(DeprecationWarning, match="make_task"):
        assert score(task.config, prediction, target) == task.score(prediction, target)
