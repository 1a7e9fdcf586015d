"""Interventions: what changes when units are edited."""
