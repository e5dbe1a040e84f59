"""Pods that start cold together build each operator about once, and none waits long for another."""

from __future__ import annotations

from typing import Any

import pytest

from support import pods
from support.pods import Fleet, Outcome


def outcome(**options: Any) -> Outcome:
    """Let thirty pods start that need the same twelve operators."""
    return Fleet(30, 12, **options).run()


def test_a_cold_fleet_builds_each_operator_once() -> None:
    """Where the service writes only new objects; and all are ready before one of them alone would be."""
    done = outcome(within=0.1)
    assert set(done.built.values()) == {1}
    assert len(done.ready) == 30
    assert max(done.ready) < done.alone + 1.0


def test_without_conditional_writes_a_cold_fleet_builds_a_little_more() -> None:
    """The last writer's word counts a moment later: seldom two hold one claim, and what they build is the same."""
    done = outcome(exclusive=False, within=0.1)
    assert done.each < 2
    assert len(done.ready) == 30


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_pods_that_die_while_they_build_hold_up_the_others_for_no_longer_than_building_takes(
    seed: int,
) -> None:
    """All that live get all operators: they wait for what building takes and a second, and build then."""
    done = outcome(dying=0.3, within=0.1, seed=seed)
    assert 1 <= len(done.ready) < 30
    assert all(done.built.values())
    assert done.each < 1.1  # what a dead one had is taken over by one of the others
    assert max(done.ready) < 2 * done.alone + 4.0


def test_a_pod_that_is_far_from_its_service_is_not_held_up_by_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty milliseconds a request: one claim after the other took three times as long as building."""
    monkeypatch.setattr(pods, "ROUND_TRIP", 0.05)
    done = Fleet(1, 60).run()
    assert done.each == 1
    assert max(done.ready) < done.alone + 1.0


def test_a_service_that_is_too_slow_for_all_leaves_each_pod_to_itself() -> None:
    """Pods give it up and build: more than once, and all of them are ready."""
    done = outcome(per_second=20.0, within=0.1)
    assert len(done.ready) == 30
    assert max(done.ready) < done.alone + 30


@pytest.mark.slow
def test_pods_that_are_far_from_their_service_are_ready_as_early_as_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten pods at fifty milliseconds a request: operators come together, and no claim is asked for what is there."""
    monkeypatch.setattr(pods, "ROUND_TRIP", 0.05)
    done = Fleet(10, 60).run()
    assert done.each < 1.5
    assert max(done.ready) < done.alone + 1.0


@pytest.mark.slow
def test_a_service_that_is_busy_with_a_fleet_is_asked_little() -> None:
    """Fifty pods and twenty requests a second for each: earlier than alone, and little is built twice.

    Each pod makes fewer requests than it needs operators.
    """
    done = Fleet(50, 60, per_second=1000.0).run()
    assert len(done.shared.requests) < 50 * 60 * 0.75
    assert done.each < 1.5
    assert max(done.ready) < done.alone


def test_without_claims_every_pod_builds_everything() -> None:
    """What claims save."""
    done = outcome(claims=False, within=0.0)
    assert done.each == 30
