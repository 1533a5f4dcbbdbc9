"""The Gaussian process: against plain NumPy, its likelihood, every kind of task, gaps."""

import math

import numpy
import pytest
import torch
from scipy.stats import multivariate_normal

from grass_gnn.config import TaskConfig
from grass_gnn.data.tables.descriptors import MORGAN_COUNTS
from grass_gnn.evaluation import gaussian_process
from grass_gnn.evaluation.gaussian_process import GaussianProcess, fit_process
from grass_gnn.tasks import TASKS, make_task


def task_of(kind, outputs):
    return make_task(TaskConfig(**TASKS[kind].default_settings(outputs, missing=True)))


NUMBERS = task_of("regression", 1)


def some_columns(rows, seed=0):
    """Morgan counts and five descriptors, the last of which is constant but for gaps."""
    source = numpy.random.default_rng(seed)
    counts = numpy.zeros((rows, MORGAN_COUNTS))
    counts[:, :60] = source.poisson(0.5, (rows, 60))
    numbers = source.normal(size=(rows, 5)) * [1, 10, 1e6, 1, 0] + [0, 5, 0, 0, 3]
    numbers[source.random((rows, 5)) < 0.05] = math.nan
    return numpy.concatenate([counts, numbers], axis=1).astype(numpy.float32)


def truth(columns):
    numbers = numpy.nan_to_num(columns[:, MORGAN_COUNTS:])
    return 3 + numpy.sin(numbers[:, 0]) + 0.3 * columns[:, :5].sum(axis=1) + 0.1 * numbers[:, 3]


def parts_of(columns, trained):
    """Squared distances and similarities, molecule by molecule."""
    counts, numbers = columns[:, :MORGAN_COUNTS].astype(float), columns[:, MORGAN_COUNTS:-1]
    numbers = numbers.astype(float)  # the last column is constant
    median = numpy.nanmedian(numbers[:trained], axis=0)
    numbers = numpy.where(numpy.isnan(numbers), median, numbers)
    numbers = numpy.sign(numbers) * numpy.log1p(abs(numbers))
    own = numbers[:trained]
    numbers = numpy.clip((numbers - own.mean(axis=0)) / own.std(axis=0), -5, 5)
    distance = numpy.square(numbers[:, None] - numbers[None]).mean(axis=2)
    shared = numpy.array([[numpy.minimum(a, b).sum() for b in counts] for a in counts])
    most = numpy.array([[numpy.maximum(a, b).sum() for b in counts] for a in counts])
    return distance, shared / most


def covariance_of(parameters, distance, similarity):
    matern, length, tanimoto, noise = numpy.exp(parameters)
    r = numpy.sqrt(3 * distance * length)
    found = matern * (1 + r) * numpy.exp(-r) + tanimoto * similarity
    return found, noise + 1e-6


def test_predictions_are_those_of_plain_numpy():
    columns = some_columns(70)
    columns[60, MORGAN_COUNTS + 1] = 1e30  # clipped
    y, trained, held = truth(columns), 40, 15
    process, ahead = fit_process(columns[:55], y[:55, None], held, NUMBERS)
    covariance, noise = covariance_of(process.kernel[0], *parts_of(columns, trained))
    shift, scale = y[:trained].mean(), y[:trained].std()

    def expected(rows, asked):
        known = covariance[:rows, :rows] + noise * numpy.eye(rows)
        across = covariance[asked, :rows]
        mean = shift + across @ numpy.linalg.solve(known, y[:rows] - shift)
        explained = (across * numpy.linalg.solve(known, across.T).T).sum(axis=1)
        return mean, scale * numpy.sqrt(covariance[asked, asked] + noise - explained)

    found = process.predict(columns[55:], NUMBERS)
    mean, std = expected(55, range(55, 70))
    numpy.testing.assert_allclose(found.mean[:, 0], mean, rtol=1e-4, atol=1e-4)
    numpy.testing.assert_allclose(found.std[:, 0], std, rtol=1e-3)
    # Validation rows by the training rows alone, other late rows by those before them.
    mean, std = expected(trained, range(trained, 55))
    numpy.testing.assert_allclose(ahead.mean[trained:, 0], mean, rtol=1e-4, atol=1e-4)
    numpy.testing.assert_allclose(ahead.std[trained:, 0], std, rtol=1e-3)
    assert ahead.mean[: trained // 2].isnan().all()
    for row in (20, 39):
        mean, std = expected(row, [row])
        assert float(ahead.mean[row, 0]) == pytest.approx(mean[0], rel=1e-4)
        assert float(ahead.std[row, 0]) == pytest.approx(std[0], rel=1e-3)


def test_parameters_maximise_the_likelihood_of_training_rows():
    columns, trained = some_columns(60), 60
    y = truth(columns)
    process, _ = fit_process(columns, y[:, None], 0, NUMBERS)
    distance, similarity = parts_of(columns, trained)
    scaled = (y - y.mean()) / y.std()

    def loss(parameters):
        covariance, noise = covariance_of(parameters, distance, similarity)
        density = multivariate_normal(None, covariance + noise * numpy.eye(trained))
        return 0.05 * numpy.square(parameters).sum() - density.logpdf(scaled)

    best = loss(process.kernel[0])
    for step in (*numpy.eye(4) * 0.3, *numpy.eye(4) * -0.3):
        assert loss(process.kernel[0] + step) > best


def test_targets_of_held_rows_affect_neither_the_kernel_nor_their_predictions():
    """Else the validation rows, by which the shares are chosen, would be fitted to."""
    columns = some_columns(60)
    y = truth(columns)[:, None]
    process, ahead = fit_process(columns, y, 15, NUMBERS)
    y[45:] *= -9
    other, same = fit_process(columns, y, 15, NUMBERS)
    torch.testing.assert_close(ahead.mean, same.mean, equal_nan=True)
    torch.testing.assert_close(ahead.std, same.std, equal_nan=True)
    numpy.testing.assert_allclose(process.kernel, other.kernel)
    assert not numpy.allclose(process.weights, other.weights)


def test_the_gradient_of_the_likelihood_is_that_of_autograd():
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(40, 3, dtype=torch.float64, generator=generator)
    points[7] = points[3]  # two molecules alike
    distance, similarity = (
        torch.cdist(points, points).square(),
        torch.exp(-torch.cdist(points, points)),
    )
    y = torch.randn(40, dtype=torch.float64, generator=generator)
    for _ in range(3):
        parameters = torch.randn(4, dtype=torch.float64, generator=generator).requires_grad_()
        value, gradient = gaussian_process._likelihood(parameters, distance, similarity, y)
        (expected,) = torch.autograd.grad(value, parameters)
        torch.testing.assert_close(gradient.detach(), expected, rtol=1e-9, atol=1e-9)


def test_more_rows_help_and_far_molecules_are_less_certain():
    columns = some_columns(400)
    y = truth(columns)
    errors = []
    for rows in (30, 300):
        process, _ = fit_process(columns[:rows], y[:rows, None], 0, NUMBERS)
        found = process.predict(columns[300:], NUMBERS).mean[:, 0].numpy()
        errors.append(numpy.square(found - y[300:]).mean())
    assert errors[1] < 0.5 * errors[0] and errors[1] < 0.1 * y.var()
    far = columns[300:].copy()
    far[:, MORGAN_COUNTS:] += 1e4
    near = process.predict(columns[300:], NUMBERS).std
    assert (process.predict(far, NUMBERS).std > near).all()


def test_labels_and_classes_become_probabilities():
    columns = some_columns(260)
    y = truth(columns)
    labels = numpy.stack([y > 3.5, y > 4], axis=1).astype(float)
    labels[::7, 1] = math.nan  # gaps
    task = task_of("multilabel", 2)
    process, ahead = fit_process(columns[:200], labels[:200], 20, task)
    found = process.predict(columns[200:], task).mean
    assert ((found > 0) & (found < 1)).all()
    assert task.score(found, torch.from_numpy(labels[200:]), "auc") > 0.85
    assert ahead.mean[180:, 0].isfinite().all()
    known = ~numpy.isnan(labels[200:, 1])
    guess, share = found[known, 1].numpy(), labels[:200, 1]
    loss = -numpy.log(numpy.where(labels[200:][known, 1] == 1, guess, 1 - guess)).mean()
    prior = numpy.nanmean(share)
    assert loss < -(prior * numpy.log(prior) + (1 - prior) * numpy.log(1 - prior))

    classes = numpy.digitize(y, (3.3, 4.2)).astype(float)[:, None]
    task = task_of("classification", 4)
    process, _ = fit_process(columns[:200], classes[:200], 20, task)
    found = process.predict(columns[200:], task).mean
    numpy.testing.assert_allclose(found.sum(dim=1), 1)
    assert (found[:, 3] == 0).all()  # no row has this class
    assert (found.argmax(dim=1).numpy() == classes[200:, 0]).mean() > 0.6


@pytest.mark.filterwarnings("error::UserWarning")
def test_targets_without_enough_rows_have_no_process():
    columns = some_columns(40)
    y = numpy.stack([truth(columns), numpy.full(40, 2.0), *numpy.full((2, 40), math.nan)], axis=1)
    y[:5, 2] = 1, 2, 3, 4, 5
    y[-8:, 3] = range(8)  # only rows that are held out
    task = task_of("regression", 4)
    process, ahead = fit_process(columns, y, 8, task)
    assert process.fitted == [0]
    found = process.predict(columns, task)
    assert found.mean[:, 0].isfinite().all() and found.mean[:, 1:].isnan().all()
    assert ahead.mean[-8:, 0].isfinite().all() and ahead.std[:, 1:].isnan().all()


def test_molecules_that_are_all_alike_or_repeated_are_no_problem():
    columns = numpy.repeat(some_columns(1), 30, axis=0)
    y = numpy.random.default_rng(0).normal(size=(30, 1))
    process, _ = fit_process(columns, y, 5, NUMBERS)
    found = process.predict(columns[:3], NUMBERS)
    assert float(found.mean[0]) == pytest.approx(y.mean(), abs=0.3)
    assert float(found.std[0]) == pytest.approx(y.std(), rel=0.3)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("kernel", lambda a: a + math.inf),
        ("kernel", lambda a: a + 100),
        ("weights", lambda a: a[:-1]),
        ("weights", lambda a: a * math.nan),
        ("inputs", lambda a: a.astype(numpy.float64)),
        ("inputs", lambda a: a + 100),
        ("scale", lambda a: a * 0),
        ("columns", lambda a: a - 100),
        ("known", lambda a: a[:, :0]),
        ("count_start", lambda a: a[::-1].copy()),
        ("count_place", lambda a: a - 10**6),
        ("count_place", lambda a: a[:-1]),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(name, change):
    columns = some_columns(20)
    process, _ = fit_process(columns, truth(columns)[:, None], 4, NUMBERS)
    arrays = process.arrays()
    again = GaussianProcess.from_arrays(arrays, 1)
    same = [one.predict(columns[:3], NUMBERS).mean for one in (process, again)]
    assert torch.equal(*same)
    with pytest.raises(ValueError, match=r"type|fit together"):
        GaussianProcess.from_arrays({**arrays, name: change(arrays[name])}, 1)


def test_large_counts_and_chunks(monkeypatch):
    columns = some_columns(50)
    columns[0, 0], columns[1, 0] = 255, 200
    process, _ = fit_process(columns, truth(columns)[:, None], 0, NUMBERS)
    whole = process.predict(columns, NUMBERS)
    monkeypatch.setattr(gaussian_process, "_CHUNK", 7)
    parts = process.predict(columns, NUMBERS)
    numpy.testing.assert_allclose(whole.mean, parts.mean, rtol=1e-6, atol=1e-6)
    similarity = gaussian_process._tanimoto(gaussian_process._unary(columns[:2, :MORGAN_COUNTS]))
    first, second = columns[:2, :MORGAN_COUNTS]
    expected = numpy.minimum(first, second).sum() / numpy.maximum(first, second).sum()
    assert float(similarity[0, 1]) == pytest.approx(expected)
