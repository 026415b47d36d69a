// SPDX-License-Identifier: Apache-2.0
// Which build this is. One object that every library and program links, so that no two of them are
// of different builds after a commit, whatever part of the rest was compiled again.
#include "transport/build_id.h"

#include "gemmar_commit.h"

const char gemmar_build_id[] = GEMMAR_PROJECT_VERSION "+" GEMMAR_COMMIT;
