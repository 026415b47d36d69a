// SPDX-License-Identifier: Apache-2.0
// Results and their sentences.
#include "kernels/error.h"

#include "transport/build_id.h"

#include <errno.h>
#include <stdio.h>

static _Thread_local struct gemmar_error last;
static _Thread_local char noted[GEMMAR_SENTENCE_BYTES];

struct gemmar_error *gemmar_error_thread(void)
{
    return &last;
}

gemmarResult_t gemmar_error_set(struct gemmar_error *error, gemmarResult_t result,
                                const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    error->result = result;
    return result;
}

void gemmar_error_clear(struct gemmar_error *error)
{
    error->result = gemmarSuccess;
    error->fatal = false;
    error->text[0] = '\0';
}

void gemmar_error_note(const char *warning)
{
    (void)snprintf(noted, sizeof(noted), "%s", warning);
}

const char *gemmar_error_noted(void)
{
    return noted;
}

gemmarResult_t gemmar_error_result(int rc)
{
    switch (-rc) {
    case 0: return gemmarSuccess;
    case EINVAL:
    case EOVERFLOW: return gemmarInvalidArgument;
    case EPROTO: return gemmarInvalidUsage;
    case EBUSY: return gemmarInvalidUsage;
    case ETIMEDOUT:
    case ECONNRESET:
    case EHOSTDOWN: return gemmarRemoteError;
    default: return gemmarSystemError;
    }
}

const char *gemmarGetErrorString(gemmarResult_t result)
{
    switch (result) {
    case gemmarSuccess: return "no error";
    case gemmarUnhandledCudaError: return "a CUDA call failed";
    case gemmarSystemError: return "the operating system or the verbs provider refused something";
    case gemmarInternalError: return "internal error";
    case gemmarInvalidArgument: return "invalid argument";
    case gemmarInvalidUsage: return "invalid usage";
    case gemmarRemoteError: return "a peer failed or did not answer in time";
    case gemmarInProgress: return "in progress";
    }
    return "unknown result code";
}

gemmarResult_t gemmarGetVersion(int *version)
{
    gemmar_error_clear(&last);
    if (version == NULL) {
        return gemmar_error_set(&last, gemmarInvalidArgument, "version is NULL");
    }
    *version = GEMMAR_VERSION;
    return gemmarSuccess;
}

const char *gemmarGetBuildId(void)
{
    return gemmar_build_id;
}
