"""Mutants that are the same program in other words, each with its reason; by module."""

from __future__ import annotations

_MEMORY = "what is remembered is only found quicker"
_GIVEN_ANEW = "it is given anew before it is read"
_CHECKED = "the lengths were compared before"
_MAXIMUM = "what is looked at twice, or is too early, is below the running maximum"
_NEXT_DAY = "the first moment of the next day is found again there"
_NO_KIND = "for a kind that there is not yet"
_PEELED = "what is left and on no cycle is looked at in vain"
_SORTED = "sorted all at once, or sorted in: the order is the same"
_LOOKED_BACK = "it begins two days before what counts"

EQUIVALENT: dict[str, dict[str, str]] = {
    "merge_rule": {
        "offer_visits: (field) then '{*}' else [max(]field) end as fields → min(": "it is where these are the same",
        "offer_visits: case when [bool_or(]field = '{*}') or min(fi → bool_and(": "that they differ is asked too",
        "offer_visits: x(array[lpad(hop::text, [5], '0'), chain]) as longe → 6": "a smallint has five digits at most",
        "offer_visits: bstr(md5(entity_id), 1, [8]))::bit(32)::bigint % sh → 9": "bit(32) takes the first eight",
        "offer_visits: returning [1] → 2": "it is counted only",
    },
    "triggers.days": {
        "_days_of_zone: len(remembered) >= _REMEMBERED → len(remembered) > _REMEMBERED": _MEMORY,
        "_days_of_zone: len(remembered) >= _REMEMBERED → len(remembered) < _REMEMBERED": _MEMORY,
        "_days_of_zone: remembered.clear() → pass": _MEMORY,
        "_days_of_zone: 0 → 1": _GIVEN_ANEW,
        "_days_of_zone: break → continue": "the steps are sorted by time",
        "_days_of_zone: day + 1 → day - 1": "a date begins in the UTC day before it, or in its own",
        "_days_of_zone: 1 → 2 #2": "a date begins in the UTC day before it, or in its own",
        "_steps: (since + offset) // DAY + 1 → (since + offset) // DAY - 1": _MAXIMUM,
        "_steps: local > day → local >= day": "the same date again changes nothing",
        "_steps: instant > begin → instant >= begin": "the later of two steps of one moment counts",
        "_pieces: begin + _PROBE → begin - _PROBE": _LOOKED_BACK,
        "_pieces: 1 → 2": "the last probe is at the end either way",
        "_pieces: since < end → since <= end": _NEXT_DAY,
    },
    "triggers.verdict": {
        "Reading.distance: FIRST <= self.threshold < END → FIRST < self.threshold < END": (
            "a value that has not reached it lies before it, and none lies before FIRST"
        ),
        (
            "Reading._values: self.ref is not None and self.reference is not None"
            " → self.ref is not None or self.reference is not None"
        ): "it has both or neither here",
        "Reading._outcome: 2 → 3": "a third unit makes no difference to whether there is one",
    },
    "triggers.cycles": {
        "_peeled: continue → break": _PEELED,
        "_peeled: back[each].discard(name) → pass": _PEELED,
        "_peeled: ends.append(each) → pass": _PEELED,
        "_peeled: ends.append(each) → pass #2": _PEELED,
        "_peeled: sorted(after) → list(after)": "of two as short either is right; a set has another order each time",
        "_shortest: return () → return None": "neither is a cycle",
    },
    "triggers.index.index": {
        "_Task.__init__: 1 → 2": _GIVEN_ANEW,
        "Index.drop: self._slots[task.slot] = None → pass": "a free slot is not read; it is let go of for the memory",
        "Index.drop: self._free.append(task.slot) → pass": "a new slot does as well; it is taken again for the memory",
        "Index._follow: measure > group.measure → measure >= group.measure": "where they are the same nothing flips",
    },
    "triggers.index.keys": {
        "seen_key: 0 → 1": "what rests on last seen does not rest on now",
        "rest_of: raise _unknown(leaf) → pass": _NO_KIND,
        "fixed_key: raise _unknown(leaf) → pass": _NO_KIND,
        (
            "_unknown: return BadRequest(f'the index knows no kind {leaf.kind!r}: s … leaf!r} is measured by')"
            " → return None"
        ): _NO_KIND,
    },
    "triggers.index.groups": {
        "Source.attach: self.first is None → self.first is not None": "the dictionary holds the first one as well",
        "Group.__init__: self.measure = self.now_measured() → pass": _GIVEN_ANEW,
        "Group.__init__: 0 → 1": "one leaf alone is sorted",
        "Group._sort: len(self.keys) - self._sorted → len(self.keys) + self._sorted": _SORTED,
        "Group._sort: added * _MANY > len(self.keys) → added * _MANY >= len(self.keys)": _SORTED,
        "Group._sort: added * _MANY > len(self.keys) → added * _MANY <= len(self.keys)": _SORTED,
        "Group._sort: added * _MANY → added // _MANY": _SORTED,
        "Group._sort: True → False": "both are as long",
        "Group.remove: 1 → 2": "one more is taken for new and sorted in again",
    },
    "stages.identity": {
        "Codec.text_of: True → False": _CHECKED,
        "Codec.id_of: True → False": _CHECKED,
        "shard_of: False → True": "it is for builds of OpenSSL that refuse MD5 otherwise",
    },
    "recovery.diagnose": {
        "_goes_on: continue → break": "a task that is too early has no other case",
    },
    "processes.graph": {
        "_refuse_circle: seen |= targets → seen &= targets": "there is no circle yet: it only takes longer",
        "_finish: step.changed.discard(each) → pass": "what follows waits for nothing that finishes in the same step",
    },
}
