"""Compute capabilities, devices and cards."""

import random

import pytest

from sm70_policy.capability import CARDS, GIB, SM7X, TURING, VOLTA, Device, DeviceKind, Sm, find_card
from sm70_policy.errors import ProblemError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7.0", (7, 0)),
        ("70", (7, 0)),
        ("sm70", (7, 0)),
        ("sm_70", (7, 0)),
        (" SM_75 ", (7, 5)),
        ("10.3", (10, 3)),
        ("sm_100", (10, 0)),
        ("120", (12, 0)),
    ],
)
def test_parse_reads_every_spelling(text: str, expected: tuple[int, int]) -> None:
    sm = Sm.parse(text)
    assert (sm.major, sm.minor) == expected


@pytest.mark.parametrize("text", ["", "7", "volta", "7.0.1", "sm-70", "-7.0", "7.55", "sm_90a", "7,0"])
def test_parse_refuses_anything_else_with_the_allowed_forms(text: str) -> None:
    with pytest.raises(ProblemError) as caught:
        Sm.parse(text)
    assert str(caught.value) == (
        f"{text!r} as a compute capability. Allowed: forms such as 7.0, 70, sm70, sm_70. "
        "Pass one of these forms."
    )


def test_parse_inverts_printing() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    for _ in range(50):
        sm = Sm(rng.randrange(1, 20), rng.randrange(10))
        spellings = (str(sm), str(sm.number), f"sm{sm.number}", f"sm_{sm.number}")
        assert [Sm.parse(text) for text in spellings] == [sm] * 4, f"seed {seed}: {sm}"


def test_capabilities_are_ordered_by_major_then_minor() -> None:
    assert sorted([Sm(10, 0), Sm(7, 5), Sm(9, 0), Sm(7, 0)]) == [Sm(7, 0), Sm(7, 5), Sm(9, 0), Sm(10, 0)]


def test_number_is_what_compilers_write() -> None:
    assert [Sm(7, 0).number, Sm(7, 5).number, Sm(10, 3).number] == [70, 75, 103]


def test_volta_and_turing_are_all_of_7x() -> None:
    assert {str(sm) for sm in VOLTA} == {"7.0", "7.2"}
    assert {str(sm) for sm in TURING} == {"7.5"}
    assert SM7X == VOLTA | TURING


@pytest.mark.parametrize(
    ("sm", "expected"),
    [(Sm(6, 1), False), (Sm(7, 0), True), (Sm(7, 2), True), (Sm(7, 5), True), (Sm(8, 0), False)],
)
def test_is_sm7x(sm: Sm, expected: bool) -> None:
    assert Device.cuda(sm).is_sm7x is expected


def test_the_cpu_is_not_7x_and_prints_its_name() -> None:
    assert not Device.cpu().is_sm7x
    assert str(Device.cpu()) == "CPU"


def test_a_cuda_device_prints_name_and_capability() -> None:
    assert str(Device.cuda(Sm(7, 0), "Tesla V100")) == "Tesla V100 (compute capability 7.0)"


@pytest.mark.parametrize(("kind", "sm"), [(DeviceKind.CUDA, None), (DeviceKind.CPU, Sm(7, 0))])
def test_kind_and_capability_must_agree(kind: DeviceKind, sm: Sm | None) -> None:
    with pytest.raises(ProblemError, match=r"Device\.cuda\(\) or Device\.cpu\(\)"):
        Device(kind, sm, "card")


def test_card_keys_are_unique() -> None:
    assert len({card.key for card in CARDS}) == len(CARDS)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.key)
def test_a_card_is_found_by_its_key_and_becomes_a_device(card: object) -> None:
    key = getattr(card, "key", "")
    found = find_card(f" {key.upper()} ")
    assert found is card
    assert found.device == Device.cuda(found.sm, found.name, found.memory_gib * GIB)


def test_the_v100_is_volta_with_16_gib() -> None:
    device = find_card("v100").device
    assert device.sm == Sm(7, 0)
    assert device.memory_bytes == 17_179_869_184


def test_an_unknown_card_lists_the_known_ones() -> None:
    with pytest.raises(ProblemError) as caught:
        find_card("p100")
    assert str(caught.value) == (
        "the card 'p100'. Allowed: v100, v100-32gb, t4, rtx2080ti, rtx8000, a100, h100, h200, b200. "
        "Pass one of these names."
    )
