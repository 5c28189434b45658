// SPDX-License-Identifier: Apache-2.0
// Integer types for a compiler that has no header of its own.
#pragma once

#define AA_INT_TYPES
typedef unsigned char uint8_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
