# SPDX-License-Identifier: Apache-2.0
"""What the ReFrame checks in reframe/ share. Installed with the package: a check file must not touch sys.path."""
