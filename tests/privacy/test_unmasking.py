"""A server that tells nodes different things about who is in a sum, with nodes that work for it."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("Crypto")

from secure_round import MORE, NAMES, Round, sign, some_numbers, verifies
from spreadout.core.errors import UserError
from spreadout.privacy import masking
from spreadout.privacy import secure_party as node
from spreadout.privacy.masking import Broken
from spreadout.privacy.secure_party import Party
from spreadout.privacy.thresholds import least, most_colluding, noisy
from spreadout.privacy.unmasking import confirm, reveal

SEVEN = [*NAMES, *MORE]
OURS = MORE  # nodes that work with the server
Shares = Mapping[str, bytes]
Answers = Callable[[Party, Sequence[str]], Shares]


def attacked(answers: Answers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ada's numbers, and what a server that tells everyone another list makes of what she sent.

    Ada is told that dora and emil left, so that her masks are agreed with ben, cleo and the two that
    work for the server. The others are told that ben or cleo left: three shares of each one's key, and
    two of the server's own nodes, make five.
    """
    round, numbers = Round(SEVEN), some_numbers(SEVEN)
    assert round.threshold == 5
    assert len(OURS) <= most_colluding(len(SEVEN), round.threshold)
    few = {name: round.letters["ada"][name] for name in ("ben", "cleo", *OURS)}
    round.letters["ada"] = few
    sent = round.sent(numbers)
    told = {
        "ben": [name for name in SEVEN if name != "cleo"],
        "cleo": [name for name in SEVEN if name != "ben"],
        "dora": [name for name in SEVEN if name not in ("ben", "cleo")],
        "emil": [name for name in SEVEN if name not in ("ben", "cleo")],
    }
    given = {name: answers(round.parties[name], list) for name, list in told.items()}
    places = {name: i for i, name in enumerate(sorted(SEVEN))}

    def secret(of: str, kind: int) -> bytes:
        honest = [name for name, list in told.items() if (of not in list) == bool(kind)]
        shares = [(places[name], given[name][of]) for name in honest]
        shares += [(places[name], round.parties[name].held[of][kind]) for name in OURS]
        return masking.secret_of(shares[:5])

    about, count = round.parties["ada"].about, len(numbers["ada"])
    found = sent["ada"] - masking.mask(node.own_mask_key(secret("ada", 0), about), count, 32)
    keys = {name: secret(name, 1) for name in ("ben", "cleo")}
    keys |= {name: round.parties[name].mask_private for name in OURS}
    for key in keys.values():  # "ada" is before them all
        agreed = masking.agreed_key(key, round.announced["ada"].mask_key, node.MASK + about)
        found = found - masking.mask(agreed, count, 32)
    return numbers["ada"], masking.as_signed(found)


def test_without_signed_lists_two_of_seven_nodes_and_the_server_unmask_one() -> None:
    """The attack is real: what nodes answered before they compared lists is enough for it."""

    def unchecked(party: Party, there: Sequence[str]) -> Shares:
        return {name: pair[0 if name in there else 1] for name, pair in party.held.items()}

    numbers, found = attacked(unchecked)
    np.testing.assert_array_equal(found, numbers)


def test_a_server_that_tells_nodes_different_lists_is_given_no_share() -> None:
    """The same attack: to each list it has that node's signature and those of its own two nodes."""

    def checked(party: Party, there: Sequence[str]) -> Shares:
        party, signature = confirm(party, there, sign(party.name))
        theirs = {name: sign(name)(party.confirmed) for name in OURS}
        return reveal(party, there, {party.name: signature, **theirs}, verifies)[1]

    with pytest.raises(Broken, match="a list that 3 nodes have signed: it takes 5"):
        attacked(checked)


@pytest.mark.parametrize("colluding", [0, 1, 2])
def test_no_two_lists_are_accepted_by_honest_nodes_below_the_bound(colluding: int) -> None:
    """Of four nodes, all ways to tell each its own list; at the bound the first two lists pass."""
    names = NAMES[:4]
    round, ours = Round(names), names[4 - colluding :]
    round.sent(some_numbers(names))
    honest = names[: 4 - colluding]
    assert round.threshold == 3
    lists = [names, *([name for name in names if name != out] for out in names)]
    signed = {
        (name, i): confirm(round.parties[name], lists[i], sign(name))
        for name in honest
        for i in range(len(lists))
        if name in lists[i]
    }

    def accepts(name: str, told: Mapping[str, int]) -> bool:
        i, party = told[name], signed[name, told[name]][0]
        signatures = {n: signed[n, i][1] for n in honest if told[n] == i}
        signatures |= {n: sign(n)(party.confirmed) for n in ours}
        try:
            reveal(party, lists[i], signatures, verifies)
        except Broken:
            return False
        return True

    most = 0
    for choice in product(*([i for i in range(5) if (name, i) in signed] for name in honest)):
        told = dict(zip(honest, choice, strict=True))
        most = max(most, len({told[name] for name in honest if accepts(name, told)}))
    assert most == (1 if colluding <= most_colluding(4, 3) else 2)


def test_a_signature_counts_for_one_list_of_one_round_and_once() -> None:
    round = Round()
    round.sent(some_numbers())
    signatures = round.signed(NAMES, NAMES)
    ada = round.parties["ada"]
    with pytest.raises(Broken, match="signed already"):
        confirm(ada, NAMES[:4], sign("ada"))
    with pytest.raises(Broken, match="another list"):
        reveal(ada, NAMES[:4], signatures, verifies)

    def refused(changed: Mapping[str, bytes], count: int) -> None:
        with pytest.raises(Broken, match=f"a list that {count} nodes have signed: it takes 4"):
            reveal(ada, NAMES, changed, verifies)

    refused({name: signatures[name] for name in NAMES[:3]}, 3)
    refused({**signatures, "ben": signatures["cleo"], "dora": b""}, 3)
    refused({"ada": signatures["ada"], **dict.fromkeys(MORE, signatures["ada"])}, 1)
    other = Round()  # the same round and nodes, with other keys
    other.sent(some_numbers())
    refused({**other.signed(NAMES, NAMES), "ada": signatures["ada"]}, 1)
    assert reveal(ada, NAMES, signatures, verifies)[1].keys() == set(NAMES)


def test_how_many_nodes_may_work_with_the_server() -> None:
    """Fewer than 2t − n; and so many less add noise that counts."""
    for n in range(3, 40):
        for share in (0.5, 2 / 3, 0.9, 1.0):
            t = least(n, share)
            assert most_colluding(n, t) >= 0
            assert noisy(n, share, 0) == t
            most = most_colluding(n, t)
            assert noisy(n, share, most) == n - t + 1
    with pytest.raises(UserError, match=r"privacy\.colluding = 4: of 10 nodes .* no more than 3"):
        noisy(10, 2 / 3, 4)
    made = {name: node.announce(name, b"", sign(name)) for name in NAMES}
    announced = {name: keys for name, (_, keys) in made.items()}
    with pytest.raises(Broken, match="5 nodes are too few for a secure sum of which 3 may collude"):
        node.share(made["ada"][0], announced, 2 / 3, verifies, 3)
