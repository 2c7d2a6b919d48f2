"""What can be snapshot: the categories of kernels, the rows of each, and the cards that they are for."""

from __future__ import annotations

from dataclasses import dataclass

from sm70_policy.errors import describe
from sm70_tools.errors import ArgumentError, NothingToDoError
from sm70_tools.routes.configurations import grid
from sm70_tools.routes.edges import NVFP4_EDGES
from sm70_tools.routes.scopes import SCOPES
from sm70_tools.routes.stock_formats import FORMATS


@dataclass(frozen=True)
class Category:
    """A set of rows.

    Attributes:
        name: First part of their names.
        about: What they are, for people.
        cards: Cards that they are taken for, as in `sm70_policy.capability.CARDS`.
        evaluation: What is run for a row and what is not.
        empty: Why there are no rows yet; empty for a category with rows.
    """

    name: str
    about: str
    cards: tuple[str, ...] = ()
    evaluation: str = ""
    empty: str = ""

    @property
    def notes(self) -> dict[str, str]:
        """What a snapshot's file tells people about its rows."""
        found = {"rows": self.evaluation}
        for scope in SCOPES if self.name != STOCK else ():
            left_out = [f"{part} left out: {reason}" for part, reason in scope.elsewhere.items()]
            found[scope.name] = "; ".join([scope.origin, *left_out])
        return found


STOCK = "stock"
_NO_KERNEL = "no package of the suite has a kernel for it"

CATEGORIES: tuple[Category, ...] = (
    Category(
        "nvfp4",
        "NVFP4 linear layers on Volta and Turing",
        ("v100", "rtx8000"),
        "for every row vLLM's front end made the engine's configuration; one layer of each kind was built, "
        "loaded through vLLM's weight loaders as rank 0, prepared, and called on meta tensors for both "
        "numbers of rows. Kernels prepared equal sizes once. Launches are arithmetic: nothing ran on a card. "
        "The type of the KV cache is part of the configuration and of no linear layer. Layers of draft "
        "models were not loaded",
    ),
    Category("awq", "AWQ linear layers", empty=_NO_KERNEL),
    Category("fp8", "FP8 linear layers", empty=_NO_KERNEL),
    Category("moe", "mixtures of experts", empty=_NO_KERNEL),
    Category("large-m", "dense products of many rows beside vLLM's Marlin", empty=_NO_KERNEL),
    Category(
        STOCK,
        "vLLM's own choice beside the choice with the suite, for each kind of checkpoint",
        ("v100", "rtx8000", "a100", "h100", "b200"),
        "vLLM's front end made an engine's configuration from a config.json with this quantization, with "
        "all gates, and a fused q/k/v layer of N = 1024 and K = 512 was built; a layer of the suite was "
        "loaded as well. Answers of vLLM's compiled library are those of its CUDA 13 wheel. Packages that "
        "change vLLM's choice and were not installed are null in the list of packages",
    ),
)


def names() -> str:
    """The names of all categories, for people."""
    return ", ".join(category.name for category in CATEGORIES)


def find_category(name: str) -> Category:
    """The category called `name`, which has rows.

    Raises:
        ArgumentError: There is no such category.
        NothingToDoError: It has no rows yet.
    """
    for category in CATEGORIES:
        if category.name == name:
            if category.empty:
                raise NothingToDoError(
                    f"nothing to snapshot yet for the category {name} ({category.about}): {category.empty}. "
                    f"Categories with rows: {', '.join(item.name for item in CATEGORIES if not item.empty)}."
                )
            return category
    raise ArgumentError(
        describe(asked=f"the category {name!r}", allowed=names(), fix="Pass one of these to --category")
    )


def row_ids(category: Category) -> tuple[str, ...]:
    """The names of all rows, sorted: for `nvfp4` 324 configurations and 18 edge cases."""
    if category.name == STOCK:
        rows = [f"{STOCK}/{card}/{item.name}" for card in category.cards for item in FORMATS]
    else:
        scopes = tuple(scope.name for scope in SCOPES)
        rows = [configuration.row_id(category.name) for configuration in grid(scopes)]
        rows += [edge.row_id(category.name) for edge in NVFP4_EDGES]
    return tuple(sorted(rows))
