// SPDX-License-Identifier: Apache-2.0
#include "anyattn/runtime.h"

const char* anyattn_version(void) { return ANYATTN_VERSION_TEXT; }
