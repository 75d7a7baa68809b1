"""The layouts of a model and of its draft, as one."""

from .... import layout as layouts
from ...live import LiveLayout


class WithDraft:
    """The layouts of a model and of its draft as one: one version fills them, and is installed in both."""

    def __init__(self, target: LiveLayout, draft: LiveLayout) -> None:
        self.target, self.draft = target, draft
        #: Whether bytes land beside the parameters whatever `layout` is asked for.
        self.always_beside = target.always_beside or draft.always_beside

    def layout(self, *, stage: bool = False, beside: bool = False) -> layouts.Layout:
        """As `LiveLayout.layout`, of both."""
        beside = beside or self.always_beside
        listed = self.target.layout(stage=stage, beside=beside)
        return self.draft.layout(stage=stage, beside=beside, into=listed)

    def stale(self) -> bool:
        """Whether one of them has to be read again."""
        return self.target.stale() or self.draft.stale()

    def check(self) -> None:
        """Raises if one of them has become that of other tensors."""
        self.target.check()
        self.draft.check()

    def finish(self) -> None:
        """Puts in place what has arrived for both."""
        self.target.finish()
        self.draft.finish()
