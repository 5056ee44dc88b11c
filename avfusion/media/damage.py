"""Damage met while a media file is read: what counts as such, what a user is told, and what is let pass.

Damage are packets that no decoder takes and frames it had to paint over. What a stream loses at its beginning counts
too, also where no decoder complains: pictures that lean on others before the cut just do not come. A missing end is
seen by comparing how far the streams reach with how far the file says they do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from avfusion.errors import AvfusionError
from avfusion.media.container import frame_rate
from avfusion.media.source import SourceFacts

_MISSING_S = 0.5  # a stream that ends so much before its declared end is cut short
_MISSING_WHOLE_S = 1.0  # likewise the whole file, where only its length is declared
_LOST_BROADCAST_S = 1.0  # so much of its beginning may a stream lose that was cut out between key frames
_LOST_S = 0.5  # elsewhere: pictures that lean on some before the cut vanish without an error
_PRIMING_S = 0.2  # less is no loss: decoders leave out the silence that encoders put in front
_REMEDY = "get the whole file, or keep what is there (--salvage)"


@dataclass
class ReadReport:
    """What was met on the way, filled while reading.

    Attributes:
        damage: descriptions of what could not be decoded, the first 20.
        num_damaged: how many packets could not be decoded, or only with pictures painted over.
        lost_beginnings: what is missing at the start of a stream, a sentence each.
        cut_short: the sentence that says how much is missing; empty for a whole file.
        clock_jumps: how often the stamps jumped and were joined.
        bad_stamps: how many stamps were missing or absurd.
        notes: all this and what else a user should know, a sentence each; there when the reading ends, or is ended.
    """

    damage: list[str] = field(default_factory=list)
    num_damaged: int = 0
    lost_beginnings: list[str] = field(default_factory=list)
    cut_short: str = ""
    clock_jumps: int = 0
    bad_stamps: int = 0
    notes: list[str] = field(default_factory=list)

    def told(self) -> Iterator[str]:
        """The sentences of the counts above."""
        if self.cut_short:
            yield f"salvaged from a file that is cut short: {self.cut_short}"
        if self.num_damaged:
            yield f"{self.num_damaged} packets could not be decoded, the first: {self.damage[0]}"
        yield from self.lost_beginnings
        if self.clock_jumps:
            yield f"the stamps jumped {self.clock_jumps} times; the parts were joined without a break"
        if self.bad_stamps:
            yield f"{self.bad_stamps} stamps were missing or absurd; the frame rate was followed instead"


@dataclass(frozen=True)
class Reading:
    """One reading of a file: what is known of it, and what becomes of damage."""

    path: Path
    facts: SourceFacts
    report: ReadReport
    salvage: bool

    def damaged(self, where: str, why: Exception | str) -> None:
        """Counts damage, or raises."""
        reason = getattr(why, "strerror", None) or str(why)
        if not self.salvage:
            raise AvfusionError(
                f"{self.path} is damaged or cut short: {where} cannot be decoded ({reason}); {_REMEDY}"
            ) from (why if isinstance(why, Exception) else None)
        self.report.num_damaged += 1
        if len(self.report.damage) < 20:
            self.report.damage.append(f"{where}: {reason}")


class Beginning:
    """Decides what is damage in one stream, and how much of its beginning may be lost."""

    def __init__(self, reading: Reading, stream_type: str) -> None:
        self._reading = reading
        self._kind = "picture" if stream_type == "video" else "sound"
        self._may_lose_s = _LOST_S if reading.facts.declares_length else _LOST_BROADCAST_S
        self._begun = False
        self._first_s: float | None = None  # the earliest packet
        self._num_lost = 0

    def see(self, packet: Any, at_s: float | None) -> None:
        """Takes note of a packet that is about to be decoded."""
        if not self._begun and at_s is not None and packet.size and not packet.is_discard:
            self._first_s = at_s if self._first_s is None else min(self._first_s, at_s)

    def failed(self, at_s: float, why: Exception | str) -> None:
        """A packet at this time gave nothing, or a picture that is no more than a guess."""
        broadcast = not self._reading.facts.declares_length
        first_s = at_s if self._first_s is None else self._first_s
        if broadcast and not self._begun and at_s - first_s <= self._may_lose_s:
            self._num_lost += 1
        else:
            self._reading.damaged(f"the {self._kind} at {at_s:.2f} s", why)

    def passes(self, frame: Any, time_s: float | None) -> bool:
        """Whether a decoded frame is to be handed on; all are, but corrupt ones before the first whole one."""
        if frame.is_corrupt:
            self.failed(time_s or 0.0, "its data are corrupt")
            if not self._begun and not self._reading.salvage:
                return False
        if not self._begun:
            self._begun = True
            self._check_start(time_s)
        return True

    def _check_start(self, time_s: float | None) -> None:
        """Compares the first frame with the first packet."""
        lost_s = 0.0 if time_s is None or self._first_s is None else time_s - self._first_s
        if lost_s > self._may_lose_s:
            self._reading.damaged(f"the first {lost_s:.2f} s of the {self._kind}", "nothing came of their packets")
        elif self._num_lost or lost_s > _PRIMING_S:
            self._reading.report.lost_beginnings.append(
                f"the first {lost_s:.2f} s of the {self._kind} could not be decoded: the file begins in mid-stream"
            )

    def end(self) -> None:
        """The file is at its end."""
        if self._num_lost and not self._begun:
            self._reading.damaged(f"the whole {self._kind}", f"{self._num_lost} packets")


class Ends:
    """Compares how far the streams of a file reach with how far it says they do."""

    def __init__(self, container: Any, facts: SourceFacts) -> None:
        self.container, self.facts = container, facts
        self._ends: dict[int, Fraction] = {}
        self._packets: dict[int, int] = {}

    def see(self, packet: Any) -> None:
        """Takes note of a packet, of whatever stream."""
        index = packet.stream_index
        if packet.size:
            self._packets[index] = self._packets.get(index, 0) + 1
        stamp = packet.pts if packet.pts is not None else packet.dts
        if stamp is not None and packet.size:
            end_s = (stamp + (packet.duration or 0)) * packet.time_base
            self._ends[index] = max(self._ends.get(index, end_s), end_s)

    def end(self, reading: Reading) -> None:
        """The file is at its end: tells what is missing, or raises."""
        missing = self._missing()
        if missing and not reading.salvage:
            raise AvfusionError(f"{reading.path} is cut short: {missing}; {_REMEDY}")
        reading.report.cut_short = missing

    def _missing(self) -> str:
        """How much is missing, in words; empty where nothing is known to be."""
        if not self.facts.declares_length:
            return ""
        for stream in self.container.streams:
            # Both the number and the length must fall short: edit lists hide packets, headers round.
            seen = self._packets.get(stream.index, 0)
            if self.container.format.name == "avi" and stream.type == "video":
                # FFmpeg shortens the length of a cut AVI to what is there; the count in the header stays.
                if float(stream.frames - seen) * float(1 / (frame_rate(stream) or 25)) > _MISSING_S:
                    return f"it holds {seen} of {stream.frames} pictures"
                continue
            if stream.type in ("video", "audio") and stream.frames and stream.duration and seen < stream.frames:
                start_s = (stream.start_time or 0) * stream.time_base
                declared_s = float(start_s + stream.duration * stream.time_base)
                end_s = float(self._ends.get(stream.index, start_s))
                if end_s < declared_s - _MISSING_S:
                    kind = "picture" if stream.type == "video" else "sound"
                    return f"its {kind} ends at {end_s:.2f} of {declared_s:.2f} s"
        if self.facts.duration_s is not None and self._ends:
            end_s = float(max(self._ends.values()))
            declared_s = self.facts.duration_s + (self.container.start_time or 0) / 1e6
            if end_s < declared_s - _MISSING_WHOLE_S:
                return f"it ends at {end_s:.2f} of {declared_s:.2f} s"
        return ""
