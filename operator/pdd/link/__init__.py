"""The line between the sites: framing and striping as pure cores, gateway and endpoint as shells."""
