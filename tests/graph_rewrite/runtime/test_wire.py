"""Messages between meter and worker."""

import io
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from graph_rewrite.runtime.ort_worker.wire import read_message, write_message

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
messages = st.dictionaries(st.text(), plain, max_size=4)


class Trickle(io.BytesIO):
    """A pipe that gives one byte at a time."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(1, size or 0))


@given(st.lists(messages, max_size=3))
def test_round_trip(sent: list[dict[str, Any]]) -> None:
    stream = io.BytesIO()
    for message in sent:
        write_message(stream, message)
    for source in (io.BytesIO(stream.getvalue()), Trickle(stream.getvalue())):
        assert [read_message(source) for _ in sent] == sent
        assert read_message(source) is None


@given(messages, st.integers(1, 10))
def test_end_inside_a_message_is_an_end(message: dict[str, Any], missing: int) -> None:
    stream = io.BytesIO()
    write_message(stream, message)
    assert read_message(io.BytesIO(stream.getvalue()[: -min(missing, len(stream.getvalue()) - 1)])) is None
