// SPDX-License-Identifier: Apache-2.0
// A shared library without a single verb.
int gemmar_no_verbs(void);

int gemmar_no_verbs(void)
{
    return 0;
}
