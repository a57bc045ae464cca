# Run by every build (cmake -P): writes the commit of SOURCE_DIR to HEADER, only if it has changed, so that a new commit
# needs no configuring and an unchanged tree no compiling. The id is "unknown" if SOURCE_DIR is not the top of a git
# repository with a commit.
function(git output)
  execute_process(COMMAND git --no-optional-locks ${ARGN} WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE text RESULT_VARIABLE status
    ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    set(text "")
  endif()
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

set(id "unknown")
git(top rev-parse --show-toplevel)
file(REAL_PATH "${SOURCE_DIR}" source)
if(top STREQUAL source)
  git(commit rev-parse --short=12 --verify HEAD)
  if(commit)
    set(id "${commit}")
    git(changes status --porcelain --untracked-files=no)
    if(changes)
      string(APPEND id "-dirty")
    endif()
  endif()
endif()

set(text "#pragma once\n#define HEADSPAN_GIT_ID \"${id}\"\n")
set(previous "")
if(EXISTS "${HEADER}")
  file(READ "${HEADER}" previous)
endif()
if(NOT text STREQUAL previous)
  file(WRITE "${HEADER}" "${text}")
endif()
