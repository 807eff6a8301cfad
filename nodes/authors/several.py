"""Several authors in one run: side by side, each with lines of work of its own, or in turn on every line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import TypeVar

from tritonsmith.evaluator.schema import Hardware, Task, TaskFacts
from tritonsmith.nodes.authors.model import ModelAuthor
from tritonsmith.nodes.chat.connect import IN_TURN
from tritonsmith.nodes.chat.records import Chat
from tritonsmith.prompts.analysis import Analysis
from tritonsmith.prompts.author import Author, AuthorError, Brief, Choosy, Draft
from tritonsmith.prompts.regions import Accounting, RegionRow, list_kernels

Answer = TypeVar("Answer")


class SeveralAuthors:
    """Seed k is written by author k, in a circle. Whom a later request goes to follows from who wrote the kernel that it is about.

    Side by side, that author goes on with its own kernels. In turn, the next one does: it repairs, analyses or rewrites what the one before
    it wrote. The answer depends on the brief alone, so a resumed run asks the same authors. Where the built-in author has nothing to write,
    the next author is asked; at most one model is asked for one request.

    Args:
        authors: two or more, with different names.
        turns: whether they take turns.
    """

    def __init__(self, authors: Sequence[Author], *, turns: bool = False) -> None:
        self._authors, self._turns = tuple(authors), turns
        self.name = f"{IN_TURN if turns else ''}{','.join(author.name for author in authors)}"
        self.unpriced = tuple(dict.fromkeys(name for author in authors for name in getattr(author, "unpriced", ())))
        """Models without a known price; a budget of money cannot hold them."""

    def wrap_chats(self, wrap: Callable[[Chat], Chat]) -> SeveralAuthors:
        """The same authors, whose chats ask through what `wrap` puts around them."""
        twin = copy(self)
        twin._authors = tuple(author.wrap_chats(wrap) if isinstance(author, ModelAuthor) else author for author in self._authors)
        return twin

    def require(self, task: Task, facts: TaskFacts, hardware: Hardware) -> None:
        """Raises AuthorError where no author can write the task; a model can always try."""
        faults: list[AuthorError] = []
        for author in self._authors:
            if not isinstance(author, Choosy):
                return
            try:
                author.require(task, facts, hardware)
            except AuthorError as fault:
                faults.append(fault)
            else:
                return
        raise faults[0]

    def account(self, brief: Brief) -> tuple[RegionRow, ...]:
        """What each part of the current kernel takes, by the first author that knows its recipe."""
        knowing = next((author for author in self._authors if isinstance(author, Accounting)), None)
        return list_kernels(brief.current.verdict if brief.current else None) if knowing is None else knowing.account(brief)

    async def seed(self, brief: Brief) -> Draft:
        """A first kernel, by the branch's author. Raises AuthorError where nobody writes one."""
        order = self._order(brief.branch % len(self._authors))

        async def ask(author: Author) -> Draft:
            return _sign(await author.seed(self._number(brief) if author is order[0] else brief), author)

        return await _ask_in_turn(order, ask)

    async def repair(self, brief: Brief) -> Draft | None:
        """A repair; None where nobody has one."""
        return await self._write(brief, lambda author: author.repair(brief))

    async def optimize(self, brief: Brief) -> Draft | None:
        """What the analysis proposes, by the author that analysed."""
        return await self._write(brief, lambda author: author.optimize(brief))

    async def analyze(self, brief: Brief) -> Analysis:
        """Why the kernel is slow."""
        return await _ask_in_turn(self._order_for(brief), lambda author: author.analyze(brief))

    async def tune(self, brief: Brief) -> tuple[Draft, ...]:
        """Variants for the stage."""
        for author in self._order_for(brief):
            try:
                drafts = await author.tune(brief)
            except AuthorError:
                if isinstance(author, ModelAuthor):
                    raise
                continue
            if drafts or isinstance(author, ModelAuthor):
                return tuple(_sign(draft, author) for draft in drafts)
        return ()

    async def _write(self, brief: Brief, ask: Callable[[Author], object]) -> Draft | None:
        for author in self._order_for(brief):
            try:
                draft = await ask(author)  # type: ignore[misc]  # each is a coroutine of an author
            except AuthorError:
                if isinstance(author, ModelAuthor):
                    raise
                continue
            if isinstance(draft, Draft):
                return _sign(draft, author)
            if isinstance(author, ModelAuthor):
                return None
        return None

    def _order_for(self, brief: Brief) -> list[Author]:
        """Whom a request about a kernel goes to, and who follows where that one has nothing."""
        writer = brief.current.candidate.author if brief.current else ""
        names = [author.name for author in self._authors]
        at = names.index(writer) if writer in names else brief.branch % len(names)
        return self._order((at + 1) % len(names) if self._turns and brief.current else at)

    def _order(self, first: int) -> list[Author]:
        """The authors from one on; after the first model no other model follows."""
        circle = [self._authors[(first + number) % len(self._authors)] for number in range(len(self._authors))]
        models = [author for author in circle if isinstance(author, ModelAuthor)]
        return [author for author in circle if author not in models[1:]]

    def _number(self, brief: Brief) -> Brief:
        """The brief with the number of the seed among those of one author, which makes its seeds differ."""
        return brief.model_copy(update={"branch": brief.branch // len(self._authors)})


async def _ask_in_turn(authors: Sequence[Author], ask: Callable[[Author], Awaitable[Answer]]) -> Answer:
    """The first answer that there is; a model's fault is final. Raises AuthorError, the first one's, where nobody has an answer."""
    faults: list[AuthorError] = []
    for author in authors:
        try:
            return await ask(author)
        except AuthorError as fault:
            if isinstance(author, ModelAuthor):
                raise
            faults.append(fault)
    raise faults[0]


def _sign(draft: Draft, author: Author) -> Draft:
    return draft.model_copy(update={"author": author.name})
