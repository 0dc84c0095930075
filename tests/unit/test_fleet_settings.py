# SPDX-License-Identifier: Apache-2.0
"""The settings of fleet.yaml: defaults, merging of the site's and the user's file, and errors with their line."""

import pytest

from firsttouch.errors import BadInput
from firsttouch.fleet import site_settings


@pytest.fixture
def files(tmp_path, own_folders):
    """The paths of the site's and of the user's file, which do not exist yet."""
    folders = tmp_path / "site", tmp_path / "config" / "firsttouch"
    for folder in folders:
        folder.mkdir(parents=True)
    return [folder / "fleet.yaml" for folder in folders]


def test_defaults_only_observe(files):
    assert site_settings.load() == site_settings.SiteSettings()
    files[0].write_text("# hold:\n#   act: true\n")
    settings = site_settings.load()
    assert settings == site_settings.SiteSettings()
    assert not settings.hold.act


def test_the_users_file_changes_single_keys_of_the_sites(files):
    site, user = files
    site.write_text("mail: ops\nhold: {act: true, cool_down: 2d}\n")
    user.write_text("hold: {passes: 3}\nexclude: {max_age: 36h}\n")
    settings = site_settings.load()
    assert settings.mail == "ops"
    assert (settings.hold.act, settings.hold.cool_down, settings.hold.passes) == (True, 2 * 86400.0, 3)
    assert settings.exclude.max_age == 36 * 3600.0


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("hold:\n  actt: true\n", 2, "unknown key 'actt' in hold.*did you mean 'act'"),
        ("hold:\n  act: 1\n", 2, "hold.act: '1'"),
        ("hold:\n  passes: 0\n", 2, "hold.passes: '0'"),
        ("hold:\n  verdicts: [pass]\n", 2, r"hold.verdicts\[0\]: 'pass'"),
        ("mail: ops\nhold:\n  cool_down: 24\n", 3, "hold.cool_down: '24'"),
        ("hold: {cool_down: 24x}\n", 1, "hold.cool_down: '24x' is not a quantity of seconds"),
        ("hold: {reservation: a-b}\n", 1, "hold.reservation: 'a-b' is not a letter, then"),
        ("mail: --uid=0\n", 1, "mail: '--uid=0' is not one word"),
        ("- a\n", 1, "the file: a list"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(files, text, line, words):
    files[0].write_text(text)
    with pytest.raises(BadInput, match=rf"site/fleet.yaml:{line}: {words}"):
        site_settings.load()
