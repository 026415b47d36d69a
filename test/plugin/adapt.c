// SPDX-License-Identifier: Apache-2.0
// Every API version in the shape of v12.
#include <limits.h>
#include <string.h>

#include "plugin/net_abi.h"
#include "test/plugin/net.h"

#define GLUE_(a, b) a##b
#define GLUE(a, b)  GLUE_(a, b)

#define V        6
#define FN(name) v6_##name
#include "test/plugin/adapt.h"
#define V        7
#define FN(name) v7_##name
#include "test/plugin/adapt.h"
#define V        8
#define FN(name) v8_##name
#include "test/plugin/adapt.h"
#define V        9
#define FN(name) v9_##name
#include "test/plugin/adapt.h"
#define V        10
#define FN(name) v10_##name
#include "test/plugin/adapt.h"
#define V        11
#define FN(name) v11_##name
#include "test/plugin/adapt.h"
#define V        12
#define FN(name) v12_##name
#include "test/plugin/adapt.h"

const struct net_calls *net_calls_of(int api)
{
    static const struct net_calls *const calls[] = {&v6_calls,  &v7_calls,  &v8_calls, &v9_calls,
                                                    &v10_calls, &v11_calls, &v12_calls};
    return calls[api - NET_OLDEST];
}
