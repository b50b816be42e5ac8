"""The six stages. None knows of another: what one changes, others may watch.

Each follows the same pattern. `should_process` is quick, and may say yes too often; `process` may come at any time,
also twice and too early, so it looks for itself whether there is something to do.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import StringValue

from classifieds import outside
from classifieds.catalogue import CURRENT, evolved, place, predicted
from classifieds.models import ON_AIR, TAKEN_DOWN, Offer
from tidemill import Patch, Untouched, Updated, stage, stages

EXPOSURE = timedelta(days=180)
#: Short, so that there is something to see; a day would do.
VIDEO_EVERY = timedelta(seconds=20)


@stage(Offer, watches={"status", "published_at"})
class TakeDown:
    """After 180 days. The timer of an offer that is published again is not moved: it comes, and is set anew."""

    def should_process(self, offer: Offer, _state: None) -> datetime | bool:
        return self.end(offer) or False

    def process(self, offer: Offer, _state: None) -> Untouched | Updated:
        end = self.end(offer)
        if end is None:
            return Untouched()
        if stages.now() < end:
            return Untouched(timer=end)
        offer.status = TAKEN_DOWN
        return Updated(offer)

    @staticmethod
    def end(offer: Offer) -> datetime | None:
        return offer.published_at + EXPOSURE if offer.status == ON_AIR and offer.published_at else None


@stage(Offer, watches={"category", "catalogue"})
class EvolveCatalogue:
    """To the catalogue of today. After a new one came out, a walk over all offers asks this stage."""

    def should_process(self, offer: Offer, _state: None) -> bool:
        return offer.catalogue < CURRENT

    def process(self, offer: Offer, _state: None) -> Untouched | Patch:
        if offer.catalogue >= CURRENT:
            return Untouched()
        category = evolved(offer.category, offer.catalogue)
        return Patch({"category": category, "catalogue": CURRENT}, reads={"category", "catalogue"})


FEATURES = {"category", "catalogue", "year", "mileage"}


@stage(Offer, watches=FEATURES, state=StringValue)
class PredictPrice:
    """Its state is what the last prediction was made from. So nothing is predicted twice, and when there is a better
    model, the stage can be told by another word in front."""

    def should_process(self, offer: Offer, state: StringValue | None) -> bool:
        return offer.catalogue == CURRENT and (state is None or state.value != self.features(offer))

    def process(self, offer: Offer, state: StringValue | None) -> Untouched | Patch:
        if not self.should_process(offer, state):
            return Untouched()
        price = predicted(offer.category, offer.year, offer.mileage)
        return Patch({"predicted_price": price}, reads=FEATURES, state=StringValue(value=self.features(offer)))

    @staticmethod
    def features(offer: Offer) -> str:
        return f"model 1: {offer.category} {offer.year} {offer.mileage}"


@stage(Offer, watches={"photos"})
class SortPhotos:
    """By angle; photos that were not fetched yet have none, and come last."""

    def should_process(self, offer: Offer, _state: None) -> bool:
        places = [place(each.get("angle")) for each in offer.photos]
        return places != sorted(places)

    def process(self, offer: Offer, _state: None) -> Updated:
        offer.photos = sorted(offer.photos, key=lambda each: place(each.get("angle")))
        return Updated(offer)  # changes nothing, and is nothing, where they were in order


@stage(Offer, watches={"photos"}, rate_limit="20/s", max_parallel=2, batch=10, time_limit="10s")
class FetchPhotos:
    """Through an outside service that bears two calls at a time. Where it refuses, the visit is tried again later, and
    nobody has to wait for it: other stages have queues of their own."""

    def should_process(self, offer: Offer, _state: None) -> bool:
        return any("stored" not in each for each in offer.photos)

    def process(self, offer: Offer, _state: None) -> Untouched | Patch:
        if not self.should_process(offer, None):
            return Untouched()
        photos = [each if "stored" in each else each | outside.fetch_photo(each["url"]) for each in offer.photos]
        # Slow, so the offer may well change meanwhile; that matters only if its photos do.
        return Patch({"photos": photos}, reads={"photos"})


@stage(Offer, watches={"video"}, state=Struct, max_parallel=4)
class CheckVideo:
    """Again and again. Its state is which video it has asked for last, and when."""

    def should_process(self, offer: Offer, state: Struct | None) -> bool:
        return offer.video != self.known(state)

    def process(self, offer: Offer, state: Struct | None) -> Untouched | Patch:
        if offer.video is None:
            return Untouched(state=None)
        if state is not None and offer.video == self.known(state):
            again = datetime.fromtimestamp(state.fields["at"].number_value, UTC) + VIDEO_EVERY
            if stages.now() < again:
                return Untouched(timer=again)
        if not outside.is_there(offer.video):
            return Patch({"video": None}, reads={"video"}, state=None)
        seen = Struct()
        seen.update({"video": offer.video, "at": stages.now().timestamp()})
        return Untouched(timer=VIDEO_EVERY, state=seen)

    @staticmethod
    def known(state: Struct | None) -> str | None:
        return None if state is None else state.fields["video"].string_value
