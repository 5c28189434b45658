# SPDX-License-Identifier: Apache-2.0
# cmake -DOBJECT=file.o -P nvcc.cmake -- command ...: runs one compilation. What it prints goes to file.o.ptxas; warnings and
# errors are shown too, and the first of either stops.
set(command "")
set(after FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(after)
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(after TRUE)
  endif()
endforeach()
execute_process(COMMAND ${command} RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
file(WRITE ${OBJECT}.ptxas "${said}")
if(NOT code EQUAL 0 OR said MATCHES "warning")
  file(REMOVE ${OBJECT})
  message(FATAL_ERROR "${said}")
endif()
