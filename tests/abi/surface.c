/* SPDX-License-Identifier: Apache-2.0 */
/* One function that reaches every struct of the interface, so that abidw sees them all. Built as a library, never run. */
#include "anyattn/plugin.h"

ANYATTN_EXPORT void anyattn_abi_surface(const anyattn_plugin* plugin, const anyattn_plugin_entry_fn entry,
                                        const anyattn_batch* batch, const anyattn_cache* cache, const anyattn_memory* memory,
                                        const anyattn_state* state);
void anyattn_abi_surface(const anyattn_plugin* plugin, const anyattn_plugin_entry_fn entry, const anyattn_batch* batch,
                         const anyattn_cache* cache, const anyattn_memory* memory, const anyattn_state* state) {
  (void)plugin, (void)entry, (void)batch, (void)cache, (void)memory, (void)state;
}
