# What `cmake --install build/release --prefix PREFIX` puts where. Nothing that is installed names the prefix: the folder can
# be moved.
include(GNUInstallDirs)

set(HEADSPAN_PYTHON_DIR ${CMAKE_INSTALL_DATADIR}/headspan/python CACHE STRING
  "Where the Python packages go, relative to the prefix; they are plain Python, for any version")
set(data ${CMAKE_INSTALL_DATADIR}/headspan)

# The libraries that are outside the system's folders are found where they were linked.
set_target_properties(headspan PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS headspan RUNTIME)
install(FILES ${PROJECT_BINARY_DIR}/src/app/headspan.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${PROJECT_BINARY_DIR}/src/app/headspan.bash RENAME headspan
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${PROJECT_BINARY_DIR}/src/app/_headspan DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)

# Job files name checkpoints relative to the folder in which a job runs: here that is `data`.
file(GLOB job_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/jobs/*.ini)
install(FILES ${job_files} jobs/README.md DESTINATION ${data}/jobs)
install(DIRECTORY slurm DESTINATION ${data} USE_SOURCE_PERMISSIONS PATTERN site.env EXCLUDE PATTERN bundle.sh EXCLUDE)
install(DIRECTORY checkpoints DESTINATION ${data} FILES_MATCHING PATTERN *.py PATTERN *.sh PATTERN *.tsv PATTERN *.md
  PATTERN requirements.txt PATTERN __pycache__ EXCLUDE PATTERN families EXCLUDE PATTERN model EXCLUDE)
install(DIRECTORY checkpoints/tiny-olmo2 DESTINATION ${data}/checkpoints PATTERN __pycache__ EXCLUDE)

file(GLOB packages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/analysis/headspan*/__init__.py)
foreach(package ${packages})
  get_filename_component(package ${package} DIRECTORY)
  install(DIRECTORY ${package} DESTINATION ${HEADSPAN_PYTHON_DIR} PATTERN __pycache__ EXCLUDE)
endforeach()
# Their programs, which find the packages by the place of their own file.
file(RELATIVE_PATH python_from_bin /${CMAKE_INSTALL_BINDIR} /${HEADSPAN_PYTHON_DIR})
foreach(program report harness capture)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/python_program.in ${PROJECT_BINARY_DIR}/installed/headspan-${program} @ONLY)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/installed/headspan-${program} DESTINATION ${CMAKE_INSTALL_BINDIR})
endforeach()

install(FILES README.md CHANGELOG.md SECURITY.md CITATION.cff DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/headspan)
