/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts: what opening plugins in a child process showed, as the configuration's folder keeps them between processes.
 * Included by tools; an engine needs none of it. Starts no runtime, so it works where a required plugin keeps one from starting.
 * Errors and texts as in runtime.h. */
#ifndef ANYATTN_VERDICTS_H
#define ANYATTN_VERDICTS_H

#include "anyattn/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* JSON: folder, verdicts[].{plugin,path,outcome,stage,signal,exit_code,seconds,reason,remedy,said,notes[],transient,expired,age_s},
 * by path. outcome: ok, refused, crash, hang, exit. config_path null: as in anyattn_runtime_options. */
ANYATTN_API int32_t anyattn_verdicts_list(const char* config_path, char** json, anyattn_error* error);
/* Forgets verdicts, so that the next open tries anew. which: a plugin's id or path; null: all. count may be null. */
ANYATTN_API int32_t anyattn_verdicts_forget(const char* config_path, const char* which, uint64_t* count, anyattn_error* error);

/* Inspects one plugin file (absolute path) and opens it in a child process, anew. JSON: path, stage, reason, remedy (null where all
 * is well), warnings[], content, libraries[], device_code[], verdict{}. OK although the file is refused. */
ANYATTN_API int32_t anyattn_verdicts_try(const char* config_path, const char* path, char** json, anyattn_error* error);

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_VERDICTS_H */
