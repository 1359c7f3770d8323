"""Oblivious HTTP: the messages of the RFCs' examples, and what nobody else may read or change."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearsay.sealed import binary_http, hpke, keys, oblivious
from ldp import InvalidInput

# RFC 9458, appendix A: a complete example of a request and a response.
PRIVATE = bytes.fromhex("3c168975674b2fa8e465970b79c8dcf09f1c741626480bd4c6162fc5b6a98e1a")
PUBLIC = bytes.fromhex("31e1f05a740102115220e9af918f738674aec95f54db6e04eb705aae8e798155")
REQUEST = bytes.fromhex("00034745540568747470730b6578616d706c652e636f6d012f")
SEALED_REQUEST = bytes.fromhex(
    "010020000100014b28f881333e7c164ffc499ad9796f877f4e1051ee6d31bad19dec96c208b4726374e46913590699"
    "2e1268c594d2a10c695d858c40a026e7965e7d86b83dd440b2c0185204b4d63525"
)
RESPONSE = bytes.fromhex("0140c8")
SALT = bytes.fromhex("c789e7151fcba46158ca84b04464910d")
SEALED_RESPONSE = bytes.fromhex(
    "c789e7151fcba46158ca84b04464910d86f9013e404feea014e7be4a441f234f857fbd"
)


def test_the_example_of_the_rfc() -> None:
    message, opener = oblivious.decapsulated(SEALED_REQUEST, {1: PRIVATE})
    assert message == REQUEST
    assert opener.sealed(RESPONSE, SALT) == SEALED_RESPONSE
    assert opener.opened(SEALED_RESPONSE) == RESPONSE


def test_the_messages_of_the_example() -> None:
    found = binary_http.read_request(REQUEST)
    assert found == binary_http.Request("GET", "https", "example.com", "/", (), b"")
    assert found.encode(1) == REQUEST + b"\0\0\0"  # no headers, content and trailers
    answer = binary_http.read_response(RESPONSE)
    assert (answer.status, dict(answer.headers), answer.content) == (200, {}, b"")


def test_an_answer_is_for_the_sender_of_its_request_alone() -> None:
    private, public = hpke.new_pair()
    config = oblivious.read_key(keys.key_config(7, public).hex())
    request, mine = oblivious.encapsulated(config, b"a question")
    other_request, other = oblivious.encapsulated(config, b"a question")
    assert request[7:] != other_request[7:]  # an ephemeral key for each
    message, gateway = oblivious.decapsulated(request, {7: private})
    assert message == b"a question"
    answer = gateway.sealed(b"an answer")
    assert mine.opened(answer) == b"an answer"
    assert gateway.sealed(b"an answer") != answer
    with pytest.raises(InvalidInput, match="not what the gateway sealed"):
        other.opened(answer)


@pytest.mark.parametrize("place", [0, 2, 4, 6, 7, 38, 39, -1])
def test_a_byte_that_changed_opens_nothing(place: int) -> None:
    changed = bytearray(SEALED_REQUEST)
    changed[place] ^= 1
    # What names key and algorithms is told apart: a device may have an old key.
    assert oblivious.names_a_key(bytes(changed), {1: PRIVATE}) == (not 0 <= place < 7)
    with pytest.raises(InvalidInput):
        oblivious.decapsulated(bytes(changed), {1: PRIVATE})


def test_what_is_cut_off_or_of_another_key_opens_nothing() -> None:
    for end in range(len(SEALED_REQUEST)):
        with pytest.raises(InvalidInput):
            oblivious.decapsulated(SEALED_REQUEST[:end], {1: PRIVATE})
    with pytest.raises(InvalidInput, match="cannot be opened"):
        oblivious.decapsulated(SEALED_REQUEST, {1: hpke.new_pair()[0]})
    _, opener = oblivious.decapsulated(SEALED_REQUEST, {1: PRIVATE})
    for end in range(len(SEALED_RESPONSE)):
        with pytest.raises(InvalidInput):
            opener.opened(SEALED_RESPONSE[:end])


def test_a_key_that_everybody_could_read_with_is_refused() -> None:
    config = oblivious.read_key(keys.key_config(1, bytes(32)).hex())
    with pytest.raises(InvalidInput, match="no X25519 key"):
        oblivious.encapsulated(config, b"")


@pytest.mark.parametrize("text", ["", "00", "zz", PUBLIC.hex(), "01" * 41])
def test_digits_that_are_no_key_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="82 hexadecimal digits"):
        oblivious.read_key(text)


NAMES = st.from_regex(r"\A[a-z0-9-]{1,20}\Z")
TEXTS = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=80)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=80)


@pytest.mark.slow
@given(
    TEXTS, TEXTS, st.dictionaries(NAMES, VALUES, max_size=9), st.binary(max_size=20_000), st.data()
)
def test_messages_come_back_as_they_were(
    authority: str, path: str, headers: dict[str, str], content: bytes, data: st.DataObject
) -> None:
    multiple = data.draw(st.integers(1, 2000))
    fields = tuple((name.encode(), value.encode("latin-1")) for name, value in headers.items())
    request = binary_http.Request("POST", "https", authority, path, fields, content)
    encoded = request.encode(multiple)
    assert len(encoded) % multiple == 0
    assert binary_http.read_request(encoded) == request
    status = data.draw(st.integers(200, 599))
    answer = binary_http.Response(status, headers, content)
    assert binary_http.read_response(answer.encode(multiple)) == answer
    early = b"\x01\x40\x67\x00"  # 103, without headers
    assert binary_http.read_response(early + answer.encode(multiple)[1:]) == answer


@given(st.binary(max_size=60))
def test_other_bytes_are_refused_or_read(data: bytes) -> None:
    for read in (binary_http.read_request, binary_http.read_response):
        with contextlib.suppress(InvalidInput):
            read(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x02", "framing 0, got 2"),  # of unknown length
        (b"", "cut off"),
        (REQUEST[:-1], "cut off"),
        (REQUEST + b"\0\0\0\0\1", "padding is not zero"),
        (REQUEST + b"\x04\x01A\x01b", "name or a value"),
        (REQUEST + b"\x05\x01a\x02b\n", "name or a value"),
        (REQUEST + b"\x40\xca" + b"\x01a\0" * 101, "cut off"),
        (REQUEST + b"\x41\x2f" + b"\x01a\0" * 101, "at most 100 headers"),
    ],
)
def test_requests_that_cannot_be(data: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        binary_http.read_request(data)


def test_an_interim_answer_alone_is_none() -> None:
    with pytest.raises(InvalidInput, match="cut off"):
        binary_http.read_response(b"\x01\x40\x67\x00")
    with pytest.raises(InvalidInput, match="200 to 599, got 99"):
        binary_http.read_response(b"\x01\x40\x63")
