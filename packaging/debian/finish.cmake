# Runs in cpack, when all files of a .deb are in place: what Debian wants otherwise than `cmake --install`. Compressed man
# pages and changelog, a copyright file, the folder of zsh, no second copy of the licence.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
set(usr ${CPACK_TEMPORARY_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX})
set(doc ${usr}/share/doc/convoy)

# compress(FILE...): the same bytes give the same file.
function(compress)
  execute_process(COMMAND gzip -9nf ${ARGN} RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "gzip of ${ARGN} failed")
  endif()
endfunction()

file(GLOB_RECURSE pages ${usr}/share/man/*.1 ${usr}/share/man/*.5)
if(pages)
  compress(${pages})
endif()
file(RENAME ${doc}/CHANGELOG.md ${doc}/changelog)
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH, if it is set
file(WRITE ${doc}/changelog.Debian "convoy (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Built with cpack; what has changed in convoy is in changelog.gz.

 -- ${CPACK_PACKAGE_CONTACT}  ${now}
")
compress(${doc}/changelog ${doc}/changelog.Debian)
file(REMOVE ${doc}/LICENSE)
file(COPY ${CPACK_CONVOY_DEBIAN}/copyright DESTINATION ${doc})
if(EXISTS ${usr}/share/zsh/site-functions)
  file(RENAME ${usr}/share/zsh/site-functions ${usr}/share/zsh/vendor-completions)
endif()
