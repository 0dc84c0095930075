# SPDX-License-Identifier: Apache-2.0
"""The report of many hosts: what is missing, which are not as expected, hosts x metrics, history.

Made of columns (:class:`firsttouch.judge.judging.Judged`): only what stands out is looked at one by one.
"""
