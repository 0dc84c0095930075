# SPDX-License-Identifier: Apache-2.0
"""The sub-commands of the command line, one module each."""
