/* SPDX-License-Identifier: Apache-2.0 */
/* Bundles and keys: what a folder is as a bundle, whether it is whole and trusted, Ed25519 keys and signatures.
 * Included by tools that pack and install; an engine needs none of it. Starts no runtime and runs nothing of a plugin.
 * Errors and texts as in runtime.h. */
#ifndef ANYATTN_BUNDLE_H
#define ANYATTN_BUNDLE_H

#include "anyattn/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* manifest.yaml of a folder with plugins, their sidecars and private libraries below lib/. driver: lowest version, 0 = any. */
ANYATTN_API int32_t anyattn_bundle_describe(const char* folder, uint32_t driver, char** manifest, anyattn_error* error);

/* Checks a bundle's folder whole: every file against the manifest, the manifest against binaries and sidecars. JSON: id, version,
 * vendor, license, hash (of manifest.yaml), signed_by (null: by none of the trusted keys), unsigned_why, fits, unfit_why,
 * plugins[], files[].{path,hash}, target{}. INVALID_ARGUMENT with one sentence where anything is missing, added, changed or wrong.
 * The trusted keys are those of the configuration; config_path null: as in anyattn_runtime_options. */
ANYATTN_API int32_t anyattn_bundle_verify(const char* config_path, const char* folder, char** json, anyattn_error* error);

/* JSON: trust_level, search[] and keys[].{id,path} of a configuration. */
ANYATTN_API int32_t anyattn_bundle_places(const char* config_path, char** json, anyattn_error* error);

/* Negative, 0, positive: 1.9 is below 1.10. */
ANYATTN_API int32_t anyattn_version_compare(const char* a, const char* b);

/* PEM texts that OpenSSL reads: the private key is the one to keep. */
ANYATTN_API int32_t anyattn_key_new(char** private_pem, anyattn_error* error);
/* Of a private or a public key. */
ANYATTN_API int32_t anyattn_key_public(const char* pem, char** public_pem, char** id, anyattn_error* error);
/* signature: [64], raw Ed25519. */
ANYATTN_API int32_t anyattn_key_sign(const char* private_pem, const void* bytes, uint64_t size, uint8_t* signature,
                                     anyattn_error* error);

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_BUNDLE_H */
