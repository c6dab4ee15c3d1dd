"""Configures and observes a process: settings, metrics, logs, health over HTTP, errors, tasks."""
