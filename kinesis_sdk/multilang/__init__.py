"""The MultiLangDaemon without Java: applications that the KCL runs as child processes run here, unchanged, in any language.

``kinesis-sdk multilang app.properties`` is the command; docs/multilang.md explains it.
"""
