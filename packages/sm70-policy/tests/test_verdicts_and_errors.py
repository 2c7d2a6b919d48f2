"""Verdicts, the error tree, and that descriptors are values: frozen, comparable, fit for pickling."""

import dataclasses
import pickle

import pytest

from policy_fakes import REFUSAL, make_problem
from sm70_policy import errors
from sm70_policy.capability import CARDS, Device, Sm
from sm70_policy.formats import NVFP4
from sm70_policy.problem import ActivationDtype, LinearProblem
from sm70_policy.registry import Absence
from sm70_policy.route import KernelVerdict, Policy
from sm70_policy.settings import Nvfp4Settings, ReportSettings, Settings
from sm70_policy.verdict import SUPPORTED, Rejection, Supported


def test_verdicts_print_what_a_person_needs() -> None:
    assert str(SUPPORTED) == "supported"
    assert str(Rejection("code", "N=3 is odd", "pad it")) == "N=3 is odd (pad it)"


def test_verdicts_compare_by_value() -> None:
    assert Supported() == SUPPORTED
    assert Rejection("a", "b", "c") == Rejection("a", "b", "c")
    assert Rejection("a", "b", "c") != Rejection("a", "b", "d")


def test_only_a_supported_verdict_counts_as_supported() -> None:
    assert KernelVerdict("A", SUPPORTED).supported
    assert not KernelVerdict("A", REFUSAL).supported


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.SettingsError, ValueError),
        (errors.ProblemError, ValueError),
        (errors.WeightError, ValueError),
        (errors.RouteError, RuntimeError),
        (errors.ContractError, RuntimeError),
        (errors.HostError, RuntimeError),
        (errors.DriverError, RuntimeError),
    ],
)
def test_each_error_is_of_the_suite_and_of_its_builtin_kind(
    error: type[Exception], builtin: type[Exception]
) -> None:
    assert issubclass(error, errors.Sm70Error)
    assert issubclass(error, builtin)


def test_describe_ends_each_part_with_one_full_stop() -> None:
    assert errors.describe(asked="N=3.", allowed="even N", fix="Pad it.") == "N=3. Allowed: even N. Pad it."


_VALUES = [
    Sm(7, 0),
    Device.cpu(),
    CARDS[0],
    CARDS[0].device,
    NVFP4,
    LinearProblem("qkv", NVFP4, 12, 32, ActivationDtype.BFLOAT16, (8, 2, 2)),
    SUPPORTED,
    REFUSAL,
    Absence("sm70-moe", REFUSAL),
    KernelVerdict("A", REFUSAL),
    Settings(Nvfp4Settings(enabled=True, qpn2=False), sm70_report=ReportSettings("routes.json")),
    Policy(Settings(), frozenset({"A"})),
]


@pytest.mark.parametrize("value", _VALUES, ids=lambda value: type(value).__name__)
def test_descriptors_survive_pickling_and_hash_by_value(value: object) -> None:
    copy = pickle.loads(pickle.dumps(value))  # noqa: S301 - written on this line
    assert copy == value
    assert hash(copy) == hash(value)


@pytest.mark.parametrize("value", _VALUES, ids=lambda value: type(value).__name__)
def test_descriptors_are_frozen(value: object) -> None:
    name = next((item.name for item in dataclasses.fields(value)), "anything")  # type: ignore[arg-type]
    with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
        setattr(value, name, None)


def test_problems_with_other_shards_differ() -> None:
    plain = make_problem(n=64)
    assert plain != dataclasses.replace(plain, shards=(32, 32))
