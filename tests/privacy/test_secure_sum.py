"""Secure aggregation in one process: exact sums, nodes that leave, and servers that ask for too much."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chisquare

pytest.importorskip("Crypto")

from Crypto.Protocol.SecretSharing import Shamir, _Element

from secure_round import ABOUT, NAMES, Round, sign, some_numbers, verifies
from spreadout.privacy import interpolation, masking
from spreadout.privacy import secure_party as node
from spreadout.privacy.masking import Bits, Broken
from spreadout.privacy.secure_party import Announced, Party
from spreadout.privacy.unmasking import confirm, reveal


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(("gone", "silent"), [([], []), (["ben"], []), ([], ["emil"])])
def test_the_secure_sum_is_the_plain_sum_exactly(bits: Bits, gone: list[str], silent: list[str]) -> None:
    """gone: after its shares, before its numbers; silent: after its numbers, in the last step."""
    numbers, round = some_numbers(), Round()
    there = [name for name in NAMES if name not in gone]
    sent = round.sent({name: numbers[name] for name in there}, bits)
    revealed = round.revealed(there, [name for name in there if name not in silent])
    np.testing.assert_array_equal(round.sum(sent, revealed, bits), sum(numbers[name] for name in there))


def test_negative_sums_and_the_ends_of_the_range() -> None:
    round, most = Round(NAMES[:3]), 2**31 - 1
    ends = [[most, -most - 1, -5], [0, 0, 2], [0, 0, 1]]
    sent = round.sent({name: np.array(own) for name, own in zip(NAMES[:3], ends, strict=True)})
    found = round.sum(sent, round.revealed(NAMES[:3], NAMES[:3]))
    assert found.tolist() == [most, -most - 1, -2]


def test_below_the_threshold_nothing_is_unmasked() -> None:
    """Neither do nodes reveal anything, nor does the server go on, nor would fewer shares tell."""
    round, numbers = Round(), some_numbers()
    assert round.threshold == 4
    there = NAMES[:3]
    sent = round.sent({name: numbers[name] for name in there})
    with pytest.raises(Broken, match="a sum of 3 nodes: it takes 4"):
        round.revealed(there, there)
    with pytest.raises(Broken, match="a sum takes 4"):
        round.sum(sent, {})
    # A server that ignores the threshold: three shares give another secret, which does not fit.
    forged = {}
    for name in there:
        held = round.parties[name].held
        forged[name] = {other: pair[other not in there] for other, pair in held.items()}
    with pytest.raises(Broken, match="do not fit"):
        round.sum(sent, forged, threshold=3)


def test_after_a_round_a_node_knows_no_secret_of_it() -> None:
    """Whoever got hold of enough nodes later, with letters that a server kept, learns nothing."""
    round = Round()
    round.sent(some_numbers())
    before = round.parties["ada"]
    round.revealed(NAMES, NAMES)
    after = round.parties["ada"]
    assert after == Party("ada", before.about, b"", b"", threshold=before.threshold)
    assert Party.from_bytes(after.to_bytes()) == after
    with pytest.raises(Broken, match="sent already"):
        node.share(after, round.announced, 2 / 3, verifies)
    with pytest.raises(Broken, match="sent already"):
        node.received(after, round.letters["ada"])


def test_too_few_letters_are_too_few_nodes() -> None:
    round = Round()
    some = dict(list(round.letters["ada"].items())[:2])
    with pytest.raises(Broken, match="3 nodes are left"):
        node.received(round.parties["ada"], some)


def test_a_node_never_gives_both_shares_of_one_node() -> None:
    """The classic attack: ask once as if a node had left, once as if it had not."""
    round = Round()
    round.sent(some_numbers())
    ada = round.parties["ada"]
    round.revealed(NAMES, NAMES)
    after = round.parties["ada"]
    with pytest.raises(Broken, match="revealed already"):
        reveal(after, NAMES[:4], {}, verifies)
    with pytest.raises(Broken, match="revealed already"):
        confirm(after, NAMES[:4], sign("ada"))
    assert ada.mask_private not in (after.mask_private, b"")  # what it no longer needs is forgotten
    with pytest.raises(Broken, match="not in this round"):
        confirm(ada, [*NAMES, "emil"], sign("ada"))  # twice in one list
    with pytest.raises(Broken, match="without this node"):
        confirm(ada, NAMES[1:], sign("ada"))
    for there in (NAMES, NAMES[:4]):
        again = Round()
        again.sent(some_numbers())
        ada = again.parties["ada"]
        shares = again.revealed(there, there)["ada"]
        assert set(shares) == set(NAMES)  # of each node one share, of one kind
        for name, own in shares.items():
            assert own == ada.held[name][name not in there]


def test_steps_are_answered_once_and_in_their_order() -> None:
    round = Round()
    ada = round.parties["ada"]
    with pytest.raises(Broken, match="sent already"):
        node.share(ada, round.announced, 2 / 3, verifies)
    with pytest.raises(Broken, match="no numbers"):
        confirm(ada, NAMES, sign("ada"))
    with pytest.raises(Broken, match="no list"):
        reveal(ada, NAMES, {}, verifies)
    read = node.received(ada, round.letters["ada"])
    with pytest.raises(Broken, match="sent already"):
        node.received(read, round.letters["ada"])


def test_keys_that_a_server_makes_up_or_changes_are_refused() -> None:
    made = {name: node.announce(name, ABOUT, sign(name)) for name in NAMES}
    announced = {name: keys for name, (_, keys) in made.items()}
    ada = made["ada"][0]
    own = masking.public_of(masking.new_key())

    def refused(changed: dict[str, Announced], why: str) -> None:
        with pytest.raises(Broken, match=why):
            node.share(ada, changed, 2 / 3, verifies)

    refused({**announced, "ben": announced["ben"]._replace(mask_key=own)}, "not signed")
    refused({**announced, "fred": announced["ben"]}, "not signed")  # a node that nobody knows
    refused({**announced, "ben": announced["cleo"]}, "not signed")
    refused({**announced, "ada": announced["ada"]._replace(letter_key=own)}, "own keys")
    refused({name: announced[name] for name in NAMES[:2]}, "too few")
    earlier = node.announce("ben", node.about_round("a run", 2), sign("ben"))[1]
    refused({**announced, "ben": earlier}, "not signed")  # of another round


def test_nodes_that_were_told_other_lists_cannot_read_each_others_letters() -> None:
    made = {name: node.announce(name, ABOUT, sign(name)) for name in NAMES}
    announced = {name: keys for name, (_, keys) in made.items()}
    few = {name: announced[name] for name in NAMES[:3]}
    ada, _, _ = node.share(made["ada"][0], few, 2 / 3, verifies)
    letters = {}
    for name in ("ben", "cleo"):
        _, sent, _ = node.share(made[name][0], announced, 2 / 3, verifies)
        letters[name] = sent["ada"]
    with pytest.raises(Broken, match="letter"):
        node.received(ada, letters)


def test_letters_are_for_one_node_and_cannot_be_changed() -> None:
    round = Round()
    ada, letters = round.parties["ada"], round.letters["ada"]
    with pytest.raises(Broken, match="letter"):
        node.received(ada, {**letters, "ben": round.letters["cleo"]["ben"]})
    changed = bytes([*letters["ben"][:-1], letters["ben"][-1] ^ 1])
    with pytest.raises(Broken, match="letter"):
        node.received(ada, {**letters, "ben": changed})
    with pytest.raises(Broken, match="not in this round"):
        node.received(ada, {**letters, "fred": changed})


def test_wrong_shares_are_noticed_and_no_wrong_sum_comes_out() -> None:
    round = Round()
    sent = round.sent(some_numbers())
    revealed = round.revealed(NAMES, NAMES)
    revealed["ada"]["cleo"] = bytes(32)
    with pytest.raises(Broken, match="do not fit"):
        round.sum(sent, revealed)


def test_what_the_server_sees_of_one_node_is_uniform_whatever_the_node_sends() -> None:
    """Two worlds, zeros or large numbers: bytes of masked numbers are even in both, and not alike."""
    seen = []
    for value in (0, 12345):
        numbers = {name: np.full(40_000, value) for name in NAMES}
        sent = Round().sent(numbers)["ada"]
        seen.append(sent)
        counts = np.bincount(sent.view(np.uint8), minlength=256)
        assert chisquare(counts).pvalue > 1e-6
    difference = (seen[1] - seen[0]).view(np.uint8)
    assert chisquare(np.bincount(difference, minlength=256)).pvalue > 1e-6
    again = Round().sent({name: np.zeros(40_000, np.int64) for name in NAMES})["ada"]
    assert not np.array_equal(again, seen[0])  # no mask comes twice


def test_all_but_one_nodes_together_with_the_server_know_the_sum_alone() -> None:
    """Without ada's own mask her numbers stay hidden even from who knows all agreed masks but one."""
    round, numbers = Round(), some_numbers()
    sent = round.sent(numbers)
    ada = round.parties["ada"]
    known = sent["ada"].copy()
    for name in NAMES[2:]:  # ben stays honest
        key = masking.agreed_key(ada.mask_private, ada.others[name][0], node.MASK + ada.about)
        known = known - masking.mask(key, len(known), 32)  # "ada" is before them all
    left = masking.as_signed(known)
    assert np.abs(np.corrcoef(left, numbers["ada"])[0, 1]) < 0.5
    assert not np.array_equal(left, numbers["ada"])


def test_any_shares_at_the_threshold_give_a_secret_back_and_fewer_do_not() -> None:
    secret = masking.new_key()
    shares = list(enumerate(masking.shares_of(secret, 3, 5)))
    assert all(masking.secret_of(list(some)) == secret for some in combinations(shares, 3))
    assert all(masking.secret_of(list(some)) != secret for some in combinations(shares, 2))
    with pytest.raises(Broken):
        masking.secret_of([shares[0], shares[0], shares[1]])
    with pytest.raises(Broken):
        masking.secret_of([(0, b"short"), *shares[1:3]])


@pytest.mark.parametrize(("threshold", "count"), [(1, 3), (3, 5), (27, 40)])
def test_secrets_are_put_together_as_the_slow_library_does(threshold: int, count: int) -> None:
    rng = np.random.default_rng(threshold)
    for _ in range(3):
        secret = masking.new_key()
        shares = masking.shares_of(secret, threshold, count)
        some = rng.choice(count, threshold, replace=False).tolist()
        halves = [[(at + 1, shares[at][i : i + 16]) for at in some] for i in (0, 16)]
        slow = b"".join(Shamir.combine(half, ssss=False) for half in halves)
        assert masking.secret_of([(at, shares[at]) for at in some]) == slow == secret
    wrong = [(at, rng.bytes(32)) for at in some]  # not shares of anything: the twin agrees all the same
    halves = [[(at + 1, share[i : i + 16]) for at, share in wrong] for i in (0, 16)]
    assert masking.secret_of(wrong) == b"".join(Shamir.combine(half, ssss=False) for half in halves)


def test_a_product_is_the_librarys_product() -> None:
    rng = np.random.default_rng(0)
    numbers = [0, 1, 2, 0x87, (1 << 128) - 1, *(int.from_bytes(rng.bytes(16)) for _ in range(20))]
    for one in numbers:
        for other in numbers:
            assert interpolation.times(one, other) == int(_Element(one) * _Element(other))


def test_a_public_key_that_makes_every_shared_key_the_same_is_refused() -> None:
    with pytest.raises(Broken):
        masking.agreed_key(masking.new_key(), bytes(32), b"")
    with pytest.raises(Broken):
        masking.agreed_key(masking.new_key(), b"short", b"")


def test_a_party_is_the_same_when_it_is_read_back() -> None:
    round = Round()
    ada = node.received(round.parties["ada"], round.letters["ada"])
    assert Party.from_bytes(ada.to_bytes()) == ada
    assert replace(ada, threshold=1) != ada
