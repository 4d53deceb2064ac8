# As in a release's tarballs.
install(FILES LICENSE DESTINATION share/licenses/aotriton COMPONENT runtime)
install(FILES aotforge/release/licences/zstd.txt DESTINATION share/licenses/aotriton RENAME LICENSE.zstd COMPONENT runtime)
