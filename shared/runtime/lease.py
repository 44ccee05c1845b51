"""A lease: one key in the store that one holder has at a time, for as long as it renews it.

    won ──renew──→ held ──→ lost (another has it, or it ran out) or released

The revision at which a lease is won is its fencing token: that of a later holder is larger. What a lease
stands for, how often it is renewed, and what its loss means is for its user to decide. Times are real
seconds.
"""

from shared.runtime.bus.contract import Conflict, State


class Lease:
    def __init__(self, store: State, key: str, holder: bytes, *, ttl_s: float) -> None:
        """`holder`: a name that no other holder has; `ttl_s`: how long the lease lasts after a renewal."""
        self._store = store
        self._key = key
        self._holder = holder
        self._ttl_s = ttl_s
        self._revision: int | None = None
        """that of our last write that is known to be stored; None: the lease is not held"""

    @property
    def held(self) -> bool:
        """Whether it was won, and neither lost nor released since, as far as is known here."""
        return self._revision is not None

    async def win(self, gone: bytes = b"") -> int | None:
        """Try to win the lease: its fencing token, or None if another holder has it. Raises Unavailable.

        `gone`: prefix of the holders that are known to be gone, whose lease may be taken; empty: none is.
        """
        self._revision = None
        while True:
            found = await self._store.get(self._key)
            if found is not None and not self._may_take(found[0], gone):
                return None
            try:
                self._revision = await self._write(0 if found is None else found[1])
            except Conflict:
                continue  # look who wrote: it may be a write of ours that seemed to fail
            return self._revision

    def _may_take(self, holder: bytes, gone: bytes) -> bool:
        return holder in (b"", self._holder) or (gone != b"" and holder.startswith(gone))

    async def renew(self) -> bool:
        """Renew the lease; false if it is lost. Raises Unavailable; then it is held until it runs out."""
        if self._revision is None:
            return False
        try:
            self._revision = await self._write(self._revision)
        except Conflict:
            return await self._renew_own()
        return True

    async def _renew_own(self) -> bool:
        """Renew at the stored revision where we are the stored holder; false if the lease is lost.

        A write of ours that seemed to fail may have been stored.
        """
        found = await self._store.get(self._key)
        try:
            if found is not None and found[0] == self._holder:
                self._revision = await self._write(found[1])
                return True
        except Conflict:
            pass
        self._revision = None
        return False

    def abandon(self) -> None:
        """Count the lease as lost, although it may still be stored: its user can no longer rely on it."""
        self._revision = None

    async def release(self) -> None:
        """Release the lease at once. Raises Unavailable, Conflict; then it runs out by itself.

        It writes an empty holder in place of purging: who may purge one value may purge all.
        """
        revision, self._revision = self._revision, None
        if revision is not None:
            await self._store.put(self._key, b"", expected=revision)

    async def _write(self, expected: int) -> int:
        return await self._store.put(self._key, self._holder, expected=expected, ttl_s=self._ttl_s)
