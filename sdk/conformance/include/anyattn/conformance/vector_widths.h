// SPDX-License-Identifier: Apache-2.0
// ANYATTN_VECTOR_WIDTHS before a function: compiled once per vector width, the widest that the processor has runs. For plain
// loops of the reference and of made-up inputs, which must not wait for a build per machine. Files that use it on sums are
// compiled with -ffp-contract=off, so that every width rounds alike.
#ifndef ANYATTN_CONFORMANCE_VECTOR_WIDTHS_H
#define ANYATTN_CONFORMANCE_VECTOR_WIDTHS_H

// Sanitizers instrument the resolver that chooses, which runs before they are ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define ANYATTN_VECTOR_WIDTHS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ANYATTN_VECTOR_WIDTHS
#endif

#endif  // ANYATTN_CONFORMANCE_VECTOR_WIDTHS_H
