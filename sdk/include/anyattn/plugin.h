/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin table and the one symbol a plugin exports. Included by plugins and by hosts of plugins.
 * A plugin that includes this header needs nothing else of the project. */
#ifndef ANYATTN_PLUGIN_H
#define ANYATTN_PLUGIN_H

#include "anyattn/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An option the plugin reads; the host refuses others and says so with file and line. */
typedef struct anyattn_option_info {
  uint32_t struct_size; /* end offset of the last field the writer knew              */
  uint32_t reserved;    /* 0                                                         */
  const char* key;
  const char* fallback; /* value where the configuration names none                  */
  const char* allowed;  /* "auto | avx512 | avx2": choices, or any text for people    */
} anyattn_option_info;
#define ANYATTN_OPTION_INFO_SIZE ANYATTN_END_OFFSET(anyattn_option_info, allowed)

/* Constant; lives as long as the process. */
typedef struct anyattn_plugin {
  uint32_t struct_size; /* end offset of the last field the writer knew                            */
  uint32_t abi_version; /* the version chosen in the entry call, not the one compiled against      */
  uint32_t abi_min;     /* range the plugin speaks                                                 */
  uint32_t abi_max;
  const char* id; /* reverse domain name: org.anyattn.cpu                                    */
  const char* vendor;
  const char* version; /* of the plugin, free text                                                */
  const char* license; /* SPDX expression                                                         */
  uint32_t num_backends;
  uint32_t num_providers;
  const anyattn_backend* const* backends;          /* [num_backends]; null only with 0                   */
  const anyattn_device_provider* const* providers; /* [num_providers]; null only with 0                  */
  uint32_t num_options;
  uint32_t option_stride;             /* bytes from one element of options to the next                           */
  const anyattn_option_info* options; /* [num_options]; null only with 0                                 */
  /* Optional; absent: nothing to do. Called at most once a process, when its last runtime closes. A runtime opened later may
   * use the tables again, so only give back what the plugin can take anew by itself. */
  void (*shutdown)(void);
} anyattn_plugin;
#define ANYATTN_PLUGIN_SIZE ANYATTN_END_OFFSET(anyattn_plugin, shutdown)

/* The entry. Receives the host's range and its table, answers the version it chose (within both ranges) in
 * plugin->abi_version and the table. Does no work and keeps nothing: it may be called more than once, by several threads at
 * once, since runtimes share the file. ABI_MISMATCH with both ranges in the text where the
 * ranges do not meet; *plugin may then still be set so that the host can print id and range. */
typedef int32_t (*anyattn_plugin_entry_fn)(uint32_t host_abi_min, uint32_t host_abi_max, const anyattn_host* host,
                                           const anyattn_plugin** plugin, anyattn_error* error);
#define ANYATTN_PLUGIN_ENTRY_NAME "anyattn_plugin_entry_v0"

#if defined(__GNUC__)
#define ANYATTN_EXPORT __attribute__((visibility("default")))
#else
#define ANYATTN_EXPORT
#endif

ANYATTN_EXPORT int32_t anyattn_plugin_entry_v0(uint32_t host_abi_min, uint32_t host_abi_max, const anyattn_host* host,
                                               const anyattn_plugin** plugin, anyattn_error* error);

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_PLUGIN_H */
